//! Values that rule files and configurations have in common.

use std::time::Duration;

use super::{OnError, OnMissingRuleSet, duration};
use crate::matcher::Pattern;
use crate::yaml::{Faults, Node, Position};

impl Faults {
    /// The duration there.
    pub fn duration(&mut self, node: &Node, what: &str) -> Option<Duration> {
        let parsed = node.as_text().and_then(duration::parse);
        if parsed.is_none() {
            let allowed = duration::ALLOWED;
            self.add(node.position, format!("{what} must be {allowed}"));
        }
        parsed
    }

    /// The path patterns there, of which there must be one at least.
    pub fn patterns(&mut self, node: &Node, what: &str) -> Vec<Pattern> {
        let nodes = self.list(node, what).iter();
        nodes.filter_map(|node| self.pattern(node)).collect()
    }

    /// The path pattern there.
    pub fn pattern(&mut self, node: &Node) -> Option<Pattern> {
        let text = self.text(node, "a path pattern")?;
        let pattern = Pattern::parse(text);
        pattern
            .map_err(|error| self.add(node.position, error.to_string()))
            .ok()
    }

    /// A header's name in lower case, for names compare without it.
    pub fn header_name(&mut self, name: &str, at: Position) -> Option<Box<str>> {
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            self.add(at, format!("`{name}` cannot be the name of a header"));
            return None;
        }
        Some(name.to_ascii_lowercase().into())
    }

    /// What `on_error` says.
    pub fn on_error(&mut self, node: &Node) -> Option<OnError> {
        self.one_of(node, "`on_error`", &OnError::NAMES)
    }

    /// What `on_missing_rule_set` says.
    pub fn on_missing_rule_set(&mut self, node: &Node) -> Option<OnMissingRuleSet> {
        let names = [
            ("allow", OnMissingRuleSet::Allow),
            ("deny", OnMissingRuleSet::Deny),
        ];
        self.one_of(node, "`on_missing_rule_set`", &names)
    }

    /// What `keys.ipv6_prefix` says.
    pub fn ipv6_prefix(&mut self, node: &Node) -> Option<u8> {
        let prefix = self.whole(node, "`ipv6_prefix`", 1, 128)?;
        u8::try_from(prefix).ok()
    }
}
