//! The parts of a rule that concern the request: conditions, key and cost.

use super::RuleReader;
use crate::key::KeyPart;
use crate::limit::MAX_UNITS;
use crate::matcher::{Conditions, PathSet};
use crate::rules::rule::CostSource;
use crate::rules::values;
use crate::yaml::{Node, Value};

impl RuleReader<'_> {
    pub(super) fn conditions(&mut self, node: Option<&Node>) -> (Conditions, PathSet) {
        let mut conditions = Conditions::default();
        let Some(node) = node else {
            return (conditions, PathSet::default());
        };
        let [path, not_path, methods, headers, attributes] = node.fields(
            "`match`",
            ["path", "not_path", "methods", "headers", "attributes"],
            self.faults,
        );
        conditions.paths = path.map(|node| values::patterns(node, "`path`", self.faults));
        let not_path = not_path.map(|node| values::patterns(node, "`not_path`", self.faults));
        conditions.methods = methods.map(|node| {
            let methods = node.list("`methods`", self.faults).iter();
            methods
                .filter_map(|node| node.text("a method", self.faults))
                .map(Into::into)
                .collect()
        });
        if let Some(node) = headers {
            for (name, key, value) in node.map("`headers`", self.faults) {
                let Some(name) = values::header_name(name, key.position, self.faults) else {
                    continue;
                };
                if conditions.headers.iter().any(|(known, _)| *known == name) {
                    self.faults.add(
                        key.position,
                        format!("header `{name}` appears twice (their case does not matter)"),
                    );
                }
                if let Some(value) = value.text("a header's value", self.faults) {
                    conditions.headers.push((name, value.into()));
                }
            }
        }
        conditions.attributes = attributes
            .map(|node| self.texts(node, "`attributes`"))
            .unwrap_or_default();
        (conditions, PathSet::new(not_path.unwrap_or_default()))
    }

    pub(super) fn texts(&mut self, node: &Node, what: &str) -> Vec<(Box<str>, Box<str>)> {
        let mut texts = Vec::new();
        for (name, _, value) in node.map(what, self.faults) {
            if let Some(value) = value.text(&format!("`{name}`"), self.faults) {
                texts.push((name.into(), value.into()));
            }
        }
        texts
    }

    pub(super) fn key(
        &mut self,
        rule: &Node,
        scope: Option<&Node>,
        key: Option<&Node>,
    ) -> Option<Vec<KeyPart>> {
        match (scope, key) {
            (Some(_), Some(key)) => {
                self.faults.add(
                    key.position,
                    "a rule has either a `scope` or a `key`, not both",
                );
                None
            }
            (None, None) => {
                self.faults
                    .add(rule.position, "a rule needs a `scope` or a `key`");
                None
            }
            (Some(scope), None) => {
                let names = [
                    ("global", None),
                    ("per_ip", Some(0)),
                    ("per_user", Some(1)),
                    ("per_api_key", Some(2)),
                ];
                let parts = [KeyPart::Ip, KeyPart::User, KeyPart::ApiKey];
                let part = scope.one_of("`scope`", &names, self.faults)?;
                Some(
                    part.map(|part: usize| parts[part].clone())
                        .into_iter()
                        .collect(),
                )
            }
            (None, Some(key)) => {
                let nodes = key.list("`key`", self.faults);
                let parts: Option<Vec<_>> = nodes.iter().map(|node| self.key_part(node)).collect();
                parts.filter(|parts| !parts.is_empty())
            }
        }
    }

    fn key_part(&mut self, node: &Node) -> Option<KeyPart> {
        let text = node.text("a part of a key", self.faults)?;
        match text {
            "ip" => return Some(KeyPart::Ip),
            "user" => return Some(KeyPart::User),
            "api_key" => return Some(KeyPart::ApiKey),
            "method" => return Some(KeyPart::Method),
            "path" => return Some(KeyPart::Path),
            _ => {}
        }
        if let Some(name) = text.strip_prefix("header:") {
            return values::header_name(name, node.position, self.faults).map(KeyPart::Header);
        }
        match text.strip_prefix("attr:") {
            Some(name) if !name.is_empty() => Some(KeyPart::Attribute(name.into())),
            _ => {
                self.faults.add(
                    node.position,
                    format!(
                        "`{text}` is not a part of a key; allowed are \
                         ip, user, api_key, method, path, header:NAME, attr:NAME"
                    ),
                );
                None
            }
        }
    }

    pub(super) fn cost(&mut self, node: &Node) -> Option<CostSource> {
        if let Some(text) = node.as_text() {
            if let Some(name) = text.strip_prefix("header:") {
                return values::header_name(name, node.position, self.faults)
                    .map(CostSource::Header);
            }
            if let Some(name) = text.strip_prefix("attr:").filter(|name| !name.is_empty()) {
                return Some(CostSource::Attribute(name.into()));
            }
        }
        if let Value::Plain(text) = &node.value
            && let Ok(cost) = text.parse::<u64>()
            && (1..=MAX_UNITS).contains(&cost)
            && !text.starts_with('+')
        {
            return Some(CostSource::Fixed(cost));
        }
        self.faults.add(
            node.position,
            format!(
                "`cost` must be a whole number from 1 to {MAX_UNITS}, header:NAME or attr:NAME"
            ),
        );
        None
    }
}
