//! A configuration before validation: a tree that records the origin of every value.

use std::path::Path;

use fluxgate_core::yaml::{Faults, Node, Value};
use fluxgate_core::{RuleSets, RulesError};

use super::checked::Config;
use super::deployment::Deployment;
use super::listen::Listen;
use super::origins::{ConfigFault, FaultLocation, Origins};
use super::overrides::{self, Overrides};
use super::rule_file::{self, RuleFileError};
use super::tree;

const DEMO: &str = include_str!("demo.yaml");
/// Unlikely as the name of a file: a shell needs quotes for the parentheses.
const DEMO_NAME: &str = "(demo)";

/// A configuration before validation.
#[derive(Clone, Debug)]
pub struct RawConfig {
    pub(super) tree: Node,
    pub(super) origins: Origins,
    /// The faults of the overrides themselves.
    faults: Vec<ConfigFault>,
}

/// An invalid configuration. Displays one line per fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read or is not YAML.
    #[error(transparent)]
    File(#[from] RuleFileError),
    /// Some values are invalid.
    #[error("{}", lines(.0))]
    Invalid(Vec<ConfigFault>),
}

impl RawConfig {
    /// Reads a file, or the demo, and applies overrides.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigError> {
        let raw = match path {
            Some(path) => Self::read(path)?,
            None => Self::demo(),
        };
        Ok(raw.with_overrides(overrides))
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &rule_file::read_text(path)?)
    }

    /// Parses the text of a file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let tree =
            Node::parse(text).map_err(|fault| rule_file::invalid(path, RulesError(vec![fault])))?;
        Ok(Self::new(&path.display().to_string(), text, tree))
    }

    /// Applies overrides.
    pub fn with_overrides(mut self, overrides: &Overrides) -> Self {
        let faults = overrides::apply(overrides, &mut self.tree, &mut self.origins);
        self.faults.extend(faults);
        self
    }

    /// Returns the built-in demo.
    pub fn demo() -> Self {
        let tree = Node::parse(DEMO).expect("the demo is built in, and a test validates it");
        Self::new(DEMO_NAME, DEMO, tree)
    }

    /// Returns whether this is the built-in demo.
    pub fn is_demo(&self) -> bool {
        self.origins.file() == DEMO_NAME
    }

    fn new(file: &str, text: &str, tree: Node) -> Self {
        Self {
            tree,
            origins: Origins::new(file, text),
            faults: Vec::new(),
        }
    }

    /// Returns where the value of a field such as `store.redis.url` comes from, or `None` if it
    /// is a default.
    pub fn location(&self, field: &str) -> Option<FaultLocation> {
        let mut names = field.split('.');
        let node = names.try_fold(&self.tree, |node, name| tree::child(node, name))?;
        Some(self.origins.location(node.position))
    }

    /// Returns the place of a field as text, such as `fluxgate.yaml:3:25`, if it is in the file.
    pub fn place_of(&self, field: &str) -> Option<String> {
        self.location(field).map(|location| location.to_string())
    }

    /// Validates all values.
    pub fn check(&self) -> Result<Config, ConfigError> {
        self.check_effective().map(|(config, _)| config)
    }

    /// Returns the listeners. The rest of the config may be invalid: a service that is running
    /// keeps its last valid rules.
    pub fn listen(&self) -> Result<Listen, ConfigError> {
        let mut faults = Faults::default();
        let listen = Listen::of_tree(&self.tree, &mut faults);
        self.valid(listen, faults)
    }

    /// Validates all values, and returns the effective configuration as a tree, too.
    pub(super) fn check_effective(&self) -> Result<(Config, Node), ConfigError> {
        let mut faults = Faults::default();
        let checked = Config::read(&self.tree, &mut faults);
        self.valid(checked, faults)
    }

    /// Returns a value that was read without faults.
    fn valid<T>(&self, value: T, faults: Faults) -> Result<T, ConfigError> {
        let faults = faults
            .into_sorted()
            .into_iter()
            .map(|fault| self.origins.fault(fault));
        let mut faults: Vec<_> = faults.chain(self.faults.iter().cloned()).collect();
        if faults.is_empty() {
            return Ok(value);
        }
        faults.sort();
        Err(ConfigError::Invalid(faults))
    }

    /// Returns a message about the file as a whole.
    pub(crate) fn in_file(&self, message: &str) -> String {
        format!("{}: {message}", self.origins.file())
    }

    /// Returns whether the root is a mapping, unlike the root of an empty or truncated file.
    pub(crate) fn is_map(&self) -> bool {
        matches!(self.tree.value, Value::Map(_))
    }

    /// Returns whether `rule_sets`, perhaps empty, or `rules_from` is given.
    pub(crate) fn defines_rules(&self) -> bool {
        let has = |name| tree::child(&self.tree, name).is_some_and(|node| !node.is_null());
        has("rule_sets") || has("rules_from")
    }

    /// Returns whether the file holds only rules and their options.
    pub fn is_rule_file(&self) -> bool {
        let Value::Map(pairs) = &self.tree.value else {
            return true;
        };
        pairs.iter().all(|(key, value)| match key.as_text() {
            Some("rule_sets" | "on_missing_rule_set") => true,
            Some("keys") => !has_any(value, &["hash_keys", "hash_secret_file"]),
            _ => false,
        })
    }

    /// Validates the file as a rule file.
    pub fn check_rules(&self) -> Result<RuleSets, ConfigError> {
        RuleSets::from_node(&self.tree).map_err(|RulesError(faults)| {
            let faults = faults.into_iter().map(|fault| self.origins.fault(fault));
            ConfigError::Invalid(faults.collect())
        })
    }

    /// Returns the rule sets of the file by name, in its order.
    pub(crate) fn rule_sets(&self) -> Vec<(&str, &Node)> {
        let sets = match tree::child(&self.tree, "rule_sets").map(|sets| &sets.value) {
            Some(Value::Map(sets)) => &sets[..],
            _ => &[],
        };
        let sets = sets.iter();
        sets.filter_map(|(name, set)| Some((name.as_text()?, set)))
            .collect()
    }

    /// Returns warnings about the rules in a valid file, as lines with their positions.
    pub fn rule_warnings(&self, rules: &RuleSets, deployment: &Deployment) -> Vec<String> {
        let Some(rule_sets) = tree::child(&self.tree, "rule_sets") else {
            return Vec::new();
        };
        let warnings = deployment
            .warnings(rules, rule_sets)
            .into_iter()
            .map(|warning| self.origins.fault(warning));
        warnings
            .map(|ConfigFault { location, message }| format!("{location}: warning: {message}"))
            .collect()
    }
}

fn has_any(node: &Node, names: &[&str]) -> bool {
    let Value::Map(pairs) = &node.value else {
        return false;
    };
    let mut known = pairs.iter().filter_map(|(key, _)| key.as_text());
    known.any(|name| names.contains(&name))
}

fn lines(faults: &[ConfigFault]) -> String {
    let lines: Vec<_> = faults.iter().map(ConfigFault::to_string).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::rules::Rules;
    use crate::config::warnings::config_warnings;

    #[test]
    fn the_demo_is_valid_and_shows_every_algorithm() {
        let demo = RawConfig::demo().check().unwrap();
        assert_eq!(config_warnings(&demo), [""; 0]);
        let Rules::Inline(sets) = &demo.rules else {
            panic!("the demo defines its rules")
        };
        let rules = sets.only().map(|set| set.rules()).unwrap_or_default();
        let ids: Vec<_> = rules.iter().map(|rule| rule.id()).collect();
        assert_eq!(ids, ["fixed", "log", "sliding", "token", "leaky"]);
        let addresses = [
            demo.listen.gateway,
            demo.listen.api,
            demo.listen.grpc,
            demo.listen.resp,
        ]
        .map(|it| it.map(|it| it.address.to_string()));
        let expected = [8080, 8081, 8082, 8083].map(|port| Some(format!("127.0.0.1:{port}")));
        assert_eq!(addresses, expected);
        assert_eq!(
            demo.gateway.routes[0].upstreams[0].target,
            fluxgate_gateway::UpstreamTarget::Echo
        );
    }
}
