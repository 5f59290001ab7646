//! What a rule asks of a request: conditions, key and cost.

use super::RuleReader;
use crate::key::KeyPart;
use crate::limit::MAX_UNITS;
use crate::matcher::{Conditions, PathSet};
use crate::rules::rule::CostSource;
use crate::yaml::{Node, Value};

impl RuleReader<'_> {
    pub(super) fn conditions(&mut self, node: Option<&Node>) -> (Conditions, PathSet) {
        let mut conditions = Conditions::default();
        let Some(node) = node else {
            return (conditions, PathSet::default());
        };
        let [path, not_path, methods, headers, attributes] = self.faults.fields(
            node,
            "`match`",
            ["path", "not_path", "methods", "headers", "attributes"],
        );
        conditions.paths = path.map(|node| self.faults.patterns(node, "`path`"));
        let not_path = not_path.map(|node| self.faults.patterns(node, "`not_path`"));
        conditions.methods = methods.map(|node| {
            let methods = self.faults.list(node, "`methods`").iter();
            methods
                .filter_map(|node| self.faults.text(node, "a method"))
                .map(Into::into)
                .collect()
        });
        if let Some(node) = headers {
            for (name, key, value) in self.faults.map(node, "`headers`") {
                let Some(name) = self.faults.header_name(name, key.position) else {
                    continue;
                };
                if conditions.headers.iter().any(|(known, _)| *known == name) {
                    self.faults.add(
                        key.position,
                        format!("header `{name}` stands twice (their case does not matter)"),
                    );
                }
                if let Some(value) = self.faults.text(value, "a header's value") {
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
        for (name, _, value) in self.faults.map(node, what) {
            if let Some(value) = self.faults.text(value, &format!("`{name}`")) {
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
                let part = self.faults.one_of(scope, "`scope`", &names)?;
                Some(
                    part.map(|part: usize| parts[part].clone())
                        .into_iter()
                        .collect(),
                )
            }
            (None, Some(key)) => {
                let nodes = self.faults.list(key, "`key`");
                let parts: Option<Vec<_>> = nodes.iter().map(|node| self.key_part(node)).collect();
                parts.filter(|parts| !parts.is_empty())
            }
        }
    }

    fn key_part(&mut self, node: &Node) -> Option<KeyPart> {
        let text = self.faults.text(node, "a part of a key")?;
        match text {
            "ip" => return Some(KeyPart::Ip),
            "user" => return Some(KeyPart::User),
            "api_key" => return Some(KeyPart::ApiKey),
            "method" => return Some(KeyPart::Method),
            "path" => return Some(KeyPart::Path),
            _ => {}
        }
        if let Some(name) = text.strip_prefix("header:") {
            return self
                .faults
                .header_name(name, node.position)
                .map(KeyPart::Header);
        }
        match text.strip_prefix("attr:") {
            Some(name) if !name.is_empty() => Some(KeyPart::Attribute(name.into())),
            _ => {
                self.faults.add(
                    node.position,
                    format!(
                        "`{text}` is no part of a key; allowed are \
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
                return self
                    .faults
                    .header_name(name, node.position)
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
