//! The parts of a rule that concern the request: conditions, key and cost.

use super::rule::RuleReader;
use crate::key::KeyPart;
use crate::matcher::{ValueMatch, Values};
use crate::rules::cost::{Cost, Tokens};
use crate::rules::rule::{Key, Pairs, Rule, ValueMatches};
use crate::yaml::{Fields, Node, Value};

/// The fields of `match`.
const FIELDS: [&str; 9] = [
    "path",
    "not_path",
    "methods",
    "headers",
    "attributes",
    "user",
    "api_key",
    "ip",
    "not_ip",
];

impl RuleReader<'_> {
    pub(super) fn conditions(&mut self, node: Option<&Node>, rule: &mut Rule) {
        let Some(node) = node else { return };
        let fields = Fields::read(Some(node), "`match`", &FIELDS, self.faults);
        rule.paths = self.list(fields.get("path"), "`path`", "a path pattern");
        rule.not_paths = self.list(fields.get("not_path"), "`not_path`", "a path pattern");
        rule.methods = self.list(fields.get("methods"), "`methods`", "a method");
        rule.match_headers =
            self.value_matches(fields.get("headers"), "`headers`", "a header's value");
        let what = "an attribute's value";
        rule.match_attributes = self.value_matches(fields.get("attributes"), "`attributes`", what);
        let user = fields.get("user");
        rule.match_user = user.map(|node| self.value_match(node, "`user`"));
        let api_key = fields.get("api_key");
        rule.match_api_key = api_key.map(|node| self.value_match(node, "`api_key`"));
        (rule.ips, rule.ip_list) = self.networks(fields.get("ip"), "`ip`");
        (rule.not_ips, rule.not_ip_list) = self.networks(fields.get("not_ip"), "`not_ip`");
    }

    /// Reads networks, or `{ in: LIST }`.
    fn networks(&mut self, node: Option<&Node>, what: &str) -> (Vec<Box<str>>, Option<Box<str>>) {
        let Some(node) = node else {
            return (Vec::new(), None);
        };
        if !node.is_map() {
            return (self.list(Some(node), what, "a network"), None);
        }
        let before = self.faults.count();
        let [list] = node.fields(what, ["in"], self.faults);
        let name = list.and_then(|node| node.text("the name of a list", self.faults));
        if list.is_none() && self.faults.count() == before {
            let message = format!("{what} is a list of networks, or `in` with the name of a list");
            self.faults.add(node.position, message);
        }
        (Vec::new(), name.map(Into::into))
    }

    fn value_matches(&mut self, node: Option<&Node>, what: &str, value: &str) -> ValueMatches {
        let pairs = node
            .map(|node| node.map(what, self.faults))
            .unwrap_or_default()
            .into_iter();
        pairs
            .map(|(name, _, node)| (name.into(), self.value_match(node, value)))
            .collect()
    }

    /// Reads a value, a list of them, `{ not: … }`, `{ present: … }`, `{ in: LIST }` or
    /// `{ not_in: LIST }`.
    fn value_match(&mut self, node: &Node, what: &str) -> ValueMatch {
        let Value::Map(_) = &node.value else {
            return ValueMatch(Values::OneOf(self.one_or_more(node, what)));
        };
        let before = self.faults.count();
        let fields = ["not", "present", "in", "not_in"];
        let [not, present, list, not_list] = node.fields(what, fields, self.faults);
        let mut list_name = |node: &Node| {
            let name = node.text("the name of a list", self.faults);
            name.map(Into::into)
        };
        match (not, present, list, not_list) {
            (Some(values), None, None, None) => {
                ValueMatch(Values::NoneOf(self.one_or_more(values, what)))
            }
            (None, Some(present), None, None) => {
                let present = present.boolean("`present`", self.faults);
                ValueMatch(Values::Present(present.unwrap_or(true)))
            }
            (None, None, Some(list), None) => {
                list_name(list).map_or(ValueMatch::present(), |name| ValueMatch(Values::In(name)))
            }
            (None, None, None, Some(list)) => list_name(list)
                .map_or(ValueMatch::present(), |name| {
                    ValueMatch(Values::NotIn(name))
                }),
            _ => {
                // An unknown field has been reported.
                if self.faults.count() == before {
                    let message = format!(
                        "{what} is a text, a list, or a mapping with one of `not`, `present`, \
                         `in` and `not_in`"
                    );
                    self.faults.add(node.position, message);
                }
                ValueMatch::present()
            }
        }
    }

    fn one_or_more(&mut self, node: &Node, what: &str) -> Vec<Box<str>> {
        match &node.value {
            Value::List(_) => self.list(Some(node), what, what),
            _ => {
                let value = node.text(what, self.faults);
                vec![value.unwrap_or_default().into()]
            }
        }
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
                let nodes = key.list("`key`", self.faults);
                if nodes.is_empty() {
                    return Key::Faulty;
                }
                let parts = nodes.iter().enumerate();
                let parts = parts.map(|(index, node)| {
                    // In place of a part with a fault: one that the others differ from.
                    let stand_in = || KeyPart::Attribute(format!("?{index}").into());
                    self.key_part(node).unwrap_or_else(stand_in)
                });
                Key::Parts(parts.collect())
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
        let part = text
            .parse::<KeyPart>()
            .map_err(|error| self.faults.add(node.position, error.to_string()));
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
            if let Some((_, tokens)) = Tokens::NAMES.iter().find(|(name, _)| *name == text) {
                return Some(Cost::Tokens(*tokens));
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
