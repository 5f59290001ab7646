//! A configuration as it is written: a tree that knows where each of its values
//! comes from, but not yet whether they are any good.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use fluxgate_core::yaml::{Faults, Node, Position, Value};
use fluxgate_core::{RuleSets, RulesError};

use super::overrides::{self, Overrides, Source};
use super::{Config, show, tree};
use crate::config::rule_file::{self, RuleFileError};

const DEMO: &str = include_str!("demo.yaml");
/// No file of this name can be meant: the parentheses would need quotes.
const DEMO_NAME: &str = "(demo)";

/// A configuration before it is checked.
#[derive(Clone, Debug)]
pub struct Draft {
    pub(super) tree: Node,
    pub(super) origins: Origins,
    /// What was wrong with the overrides themselves.
    faults: Vec<ConfigFault>,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A file.
    File {
        /// Its name.
        file: String,
        /// Where in it.
        position: Position,
    },
    /// The environment or a flag.
    Override(Source),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, position } => {
                write!(f, "{file}:{}:{}", position.line, position.column)
            }
            Self::Override(source) => write!(f, "{source}"),
        }
    }
}

/// One thing that is wrong, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigFault {
    /// Where.
    pub place: Place,
    /// What, and what is allowed.
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Why there is no config; shown as one line a fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read, or is no YAML.
    #[error(transparent)]
    File(#[from] RuleFileError),
    /// What it says is wrong.
    #[error("{}", lines(.0))]
    Invalid(Vec<ConfigFault>),
}

impl Draft {
    /// The text of this file, or of the demo, with these changes.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Self, ConfigError> {
        let draft = match path {
            Some(path) => Self::read(path)?,
            None => Self::demo(),
        };
        Ok(draft.with(overrides))
    }

    /// What this file says.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &rule_file::read_text(path)?)
    }

    /// What this text says, which stands in this file.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let tree =
            Node::parse(text).map_err(|fault| rule_file::invalid(path, RulesError(vec![fault])))?;
        Ok(Self::new(&path.display().to_string(), text, tree))
    }

    /// The same with these changes.
    pub fn with(mut self, overrides: &Overrides) -> Self {
        let faults = overrides::apply(overrides, &mut self.tree, &mut self.origins);
        self.faults.extend(faults);
        self
    }

    /// The built-in demo.
    pub fn demo() -> Self {
        let tree = Node::parse(DEMO);
        let tree = tree.expect("the demo is part of the program, and a test checks it");
        Self::new(DEMO_NAME, DEMO, tree)
    }

    /// Whether it is the built-in demo.
    pub fn is_demo(&self) -> bool {
        self.origins.file == DEMO_NAME
    }

    fn new(file: &str, text: &str, tree: Node) -> Self {
        let origins = Origins {
            file: file.into(),
            // In YAML, a carriage return alone ends a line, too.
            lines: text.split(['\n', '\r']).count() + 1,
            overrides: Vec::new(),
        };
        let faults = Vec::new();
        Self {
            tree,
            origins,
            faults,
        }
    }

    /// Checks everything.
    pub fn check(&self) -> Result<Config, ConfigError> {
        let mut faults = Faults::default();
        let config = Config::read(&self.tree, &mut faults);
        self.told(faults)?;
        Ok(config)
    }

    /// Whether it is a mapping; a file that was cut off at its start is none.
    pub(crate) fn is_map(&self) -> bool {
        matches!(self.tree.value, Value::Map(_))
    }

    /// Whether it says which rules there are, if only that there are none, or
    /// where they come from.
    pub(crate) fn says_rules(&self) -> bool {
        let says = |name| tree::child(&self.tree, name).is_some_and(|node| !node.is_null());
        says("rule_sets") || says("rules_from")
    }

    /// Whether it says nothing but rules.
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

    /// Checks it as a rule file.
    pub fn check_rules(&self) -> Result<RuleSets, ConfigError> {
        RuleSets::from_node(&self.tree).map_err(|RulesError(faults)| {
            let faults = faults.into_iter().map(|fault| self.origins.fault(fault));
            ConfigError::Invalid(faults.collect())
        })
    }

    /// The fields that differ and are read at the start only: all but the rules
    /// and what belongs to them.
    pub(crate) fn fixed_fields_changed_since(&self, other: &Self) -> Vec<String> {
        let (now, before) = (self.fixed_fields(), other.fixed_fields());
        let names: BTreeSet<_> = now.keys().chain(before.keys()).collect();
        let changed = names
            .into_iter()
            .filter(|name| now.get(*name) != before.get(*name));
        changed.cloned().collect()
    }

    fn fixed_fields(&self) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        let Value::Map(pairs) = &self.tree.value else {
            return fields;
        };
        for (key, value) in pairs {
            match (key.as_text(), &value.value) {
                (None | Some("rule_sets" | "on_missing_rule_set"), _) => {}
                (Some(field), Value::Map(pairs)) => {
                    for (key, value) in pairs {
                        let name = format!("{field}.{}", key.as_text().unwrap_or_default());
                        if name != "keys.ipv6_prefix" {
                            fields.insert(name, value.canonical());
                        }
                    }
                }
                (Some(field), _) => {
                    fields.insert(field.to_owned(), value.canonical());
                }
            }
        }
        fields
    }

    /// The effective configuration as YAML: defaults filled in, secrets hidden,
    /// and a comment where a value does not come from the file.
    pub fn show(&self) -> Result<String, ConfigError> {
        Ok(show::show(self, &self.check()?))
    }

    fn told(&self, faults: Faults) -> Result<(), ConfigError> {
        let faults = faults.into_sorted().into_iter();
        let faults = faults.map(|fault| self.origins.fault(fault));
        let mut faults: Vec<_> = faults.chain(self.faults.iter().cloned()).collect();
        if faults.is_empty() {
            return Ok(());
        }
        faults.sort();
        Err(ConfigError::Invalid(faults))
    }
}

/// Which line comes from where: those of the file, and after them one for each
/// override, as if they had been written below it.
#[derive(Clone, Debug)]
pub(super) struct Origins {
    file: String,
    lines: usize,
    overrides: Vec<Source>,
}

impl Origins {
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// A line for one more override.
    pub(super) fn add(&mut self, source: Source) -> Position {
        self.overrides.push(source);
        Position {
            line: self.lines + self.overrides.len(),
            column: 1,
        }
    }

    /// The override that a place belongs to.
    fn source(&self, at: Position) -> Option<&Source> {
        let index = at.line.checked_sub(self.lines + 1)?;
        self.overrides.get(index)
    }

    /// The override that gave a value, not only room for one.
    pub(super) fn giver(&self, node: &Node) -> Option<&Source> {
        let source = self.source(node.position);
        source.filter(|_| node.position.column != overrides::ON_THE_WAY)
    }

    fn fault(&self, fault: fluxgate_core::yaml::Fault) -> ConfigFault {
        let place = match self.source(fault.position) {
            Some(source) => Place::Override(source.clone()),
            None => Place::File {
                file: self.file.clone(),
                position: fault.position,
            },
        };
        ConfigFault {
            place,
            message: fault.message,
        }
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
