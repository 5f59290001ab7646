//! The parts of a rule that concern the request: conditions, key and cost.

use super::rule::RuleReader;
use crate::key::KeyPart;
use crate::rules::rule::{Cost, Key, Pairs, Rule};
use crate::yaml::{Node, Value};

impl RuleReader<'_> {
    pub(super) fn conditions(&mut self, node: Option<&Node>, rule: &mut Rule) {
        let Some(node) = node else { return };
        let [path, not_path, methods, headers, attributes] = node.fields(
            "`match`",
            ["path", "not_path", "methods", "headers", "attributes"],
            self.faults,
        );
        rule.paths = self.list(path, "`path`", "a path pattern");
        rule.not_paths = self.list(not_path, "`not_path`", "a path pattern");
        rule.methods = self.list(methods, "`methods`", "a method");
        if let Some(node) = headers {
            for (name, _, value) in node.map("`headers`", self.faults) {
                let value = value.text("a header's value", self.faults);
                let value = value.unwrap_or_default().into();
                rule.match_headers.push((name.into(), value));
            }
        }
        let attributes = attributes.map(|node| self.texts(node, "`attributes`"));
        rule.match_attributes = attributes.unwrap_or_default();
    }

    /// Reads a list of texts. An element that is not a text is empty.
    fn list(&mut self, node: Option<&Node>, what: &str, element: &str) -> Vec<Box<str>> {
        let nodes = node.map_or(&[][..], |node| node.list(what, self.faults));
        let texts = nodes.iter().map(|node| node.text(element, self.faults));
        texts.map(|text| text.unwrap_or_default().into()).collect()
    }

    pub(super) fn texts(&mut self, node: &Node, what: &str) -> Pairs {
        let mut texts = Vec::new();
        for (name, _, value) in node.map(what, self.faults) {
            if let Some(value) = value.text(&format!("`{name}`"), self.faults) {
                texts.push((name.into(), value.into()));
            }
        }
        texts
    }

    pub(super) fn key(&mut self, scope: Option<&Node>, key: Option<&Node>) -> Key {
        match (scope, key) {
            (Some(_), Some(key)) => {
                self.faults.add(
                    key.position,
                    "a rule has either a `scope` or a `key`, not both",
                );
                Key::Faulty
            }
            (None, None) => Key::Missing,
            (Some(scope), None) => self.scope(scope),
            (None, Some(key)) => {
                let nodes = key.list("`key`", self.faults).iter();
                let parts: Vec<_> = nodes.map(|node| self.key_part(node)).collect();
                let parts: Option<Vec<_>> = parts.into_iter().collect();
                let parts = parts.filter(|parts| !parts.is_empty());
                parts.map_or(Key::Faulty, Key::Parts)
            }
        }
    }

    fn scope(&mut self, node: &Node) -> Key {
        const GLOBAL: u8 = 0;
        let names = [
            ("global", GLOBAL),
            ("per_ip", 1),
            ("per_user", 2),
            ("per_api_key", 3),
        ];
        let part = match node.one_of("`scope`", &names, self.faults) {
            None => return Key::Faulty,
            Some(GLOBAL) => return Key::Global,
            Some(1) => KeyPart::Ip,
            Some(2) => KeyPart::User,
            Some(_) => KeyPart::ApiKey,
        };
        Key::Parts(vec![part])
    }

    fn key_part(&mut self, node: &Node) -> Option<KeyPart> {
        let text = node.text("a part of a key", self.faults)?;
        let part = text.parse::<KeyPart>();
        let part = part.map_err(|error| self.faults.add(node.position, error.to_string()));
        part.ok()
    }

    pub(super) fn cost(&mut self, node: &Node) -> Option<Cost> {
        if let Some(text) = node.as_text() {
            if let Some(name) = text.strip_prefix("header:") {
                return Some(Cost::Header(name.into()));
            }
            if let Some(name) = text.strip_prefix("attr:") {
                return Some(Cost::Attribute(name.into()));
            }
        }
        if let Value::Plain(text) = &node.value
            && let Ok(cost) = text.parse::<u64>()
            && !text.starts_with('+')
        {
            return Some(Cost::Fixed(cost));
        }
        self.faults.add(node.position, Cost::expected());
        None
    }
}
