//! Rules: from the text that people write to what a decision can use at once.

mod band;
mod duration;
mod in_force;
mod number;
mod parse;
mod read;
mod rule;

use std::sync::Arc;

use hashbrown::HashMap;

use crate::context::RequestContext;
use crate::key;
use crate::limit::Limit;
use crate::matcher::Matcher;
use crate::yaml::{Fault, Faults, Node};

pub use band::Band;
pub use in_force::ActiveRuleSet;
pub use number::RuleNumber;
pub use rule::{CostSource, OnError, OnMissingRuleSet, Rule, RuleMode};

/// Every rule set of a process, checked and ready.
#[derive(Clone, Debug, Default)]
pub struct RuleSets {
    sets: HashMap<Box<str>, Arc<RuleSet>>,
    on_missing: OnMissingRuleSet,
}

/// What the rules themselves do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleOptions {
    /// How many leading bits of an IPv6 address are counted as one client.
    pub ipv6_prefix: u8,
    /// What a rule set that does not exist means.
    pub on_missing_rule_set: OnMissingRuleSet,
}

impl Default for RuleOptions {
    fn default() -> Self {
        Self {
            ipv6_prefix: 64,
            on_missing_rule_set: OnMissingRuleSet::default(),
        }
    }
}

impl RuleSets {
    /// Reads a rule file: a mapping with `rule_sets` and, if wanted,
    /// `on_missing_rule_set` and `keys: { ipv6_prefix }`. JSON will do as well.
    pub fn from_yaml(text: &str) -> Result<Self, RulesError> {
        match Node::parse(text) {
            Ok(root) => Self::from_node(&root),
            Err(fault) => Err(RulesError(vec![fault])),
        }
    }

    /// Reads a rule file that is a tree already.
    pub fn from_node(root: &Node) -> Result<Self, RulesError> {
        let mut faults = Faults::default();
        let sets = parse::rule_file(root, &mut faults);
        if faults.count() > 0 {
            return Err(RulesError(faults.into_sorted()));
        }
        Ok(sets)
    }

    /// Reads the mapping under `rule_sets` of a file in which other things stand
    /// too. What is wrong goes to `faults`; what is left then is not to be used.
    pub fn read(rule_sets: &Node, options: RuleOptions, faults: &mut Faults) -> Self {
        parse::sets(rule_sets, options, faults)
    }

    /// Takes in the sets of another part of the same rules. A name that both
    /// have means the other's set then.
    pub fn extend(&mut self, other: Self) {
        self.sets.extend(other.sets);
    }

    /// The same rules with other limits. `change` is asked about every band,
    /// those of overrides included; a rule of which it cannot change every band
    /// stays as it is.
    pub fn with_limits(
        &self,
        mut change: impl FnMut(&RuleSet, &Rule, &Limit) -> Option<Limit>,
    ) -> Self {
        let mut changed = self.clone();
        for set in changed.sets.values_mut() {
            let old = Arc::clone(set);
            let rules = Arc::make_mut(set).rules.iter_mut();
            for (rule, old_rule) in rules.zip(&old.rules) {
                let bands = old_rule.bands.iter();
                let limits = bands.map(|band| change(&old, old_rule, band.limit()));
                if let Some(limits) = limits.collect::<Option<Vec<_>>>() {
                    rule.set_limits(limits);
                }
            }
        }
        changed
    }

    /// The set of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<RuleSet>> {
        self.sets.get(name)
    }

    /// The only set, if there is just one.
    pub fn only(&self) -> Option<&Arc<RuleSet>> {
        let mut sets = self.sets.values();
        sets.next().filter(|_| self.sets.len() == 1)
    }

    /// All sets, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RuleSet>> {
        self.sets.values()
    }

    /// What a set that does not exist means.
    pub fn on_missing(&self) -> OnMissingRuleSet {
        self.on_missing
    }
}

/// Rules that are asked together.
#[derive(Clone, Debug)]
pub struct RuleSet {
    name: Box<str>,
    on_error: OnError,
    /// The enabled rules in the order of evaluation.
    rules: Vec<Rule>,
    matcher: Matcher,
    ipv6_prefix: u8,
    /// The headers that the rules ask about, in lower case.
    header_names: Box<[Box<str>]>,
    /// Whether a rule may delay requests.
    delays: bool,
    /// Those among them that are part of a key.
    key_header_names: Box<[Box<str>]>,
}

impl RuleSet {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is decided when the store cannot.
    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// The enabled rules in the order of evaluation.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The enabled rule of this id.
    pub fn rule(&self, id: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.id() == id)
    }

    /// The headers that any enabled rule asks about, in lower case, each once.
    /// Of a request's headers, a context need hold no others.
    pub fn header_names(&self) -> &[Box<str>] {
        &self.header_names
    }

    /// Whether an enabled rule may delay requests: until their turn, or in a queue
    /// that shapes.
    pub fn delays(&self) -> bool {
        self.delays
    }

    /// The headers that are part of an enabled rule's key, in lower case, each once.
    pub fn key_header_names(&self) -> &[Box<str>] {
        &self.key_header_names
    }

    /// Who a rule of this set counts in a request, for people to read: `user=ann`.
    /// API keys are shown by their ends only. `None` where the key lacks a part
    /// that nothing stands in for.
    pub fn describe_identity(&self, rule: &Rule, context: &RequestContext<'_>) -> Option<String> {
        let mut identity = key::SubjectBytes::new();
        let (parts, on_missing) = (rule.key(), rule.on_missing_key());
        let built =
            key::encode_identity(parts, on_missing, context, self.ipv6_prefix, &mut identity);
        (built == key::Identity::Known).then(|| key::describe_identity(&identity))
    }

    /// The same, of the values of a rule's key.
    pub fn describe_values(&self, rule: &Rule, values: &[&str]) -> Option<String> {
        let mut identity = key::SubjectBytes::new();
        key::encode_values(rule.key(), values, self.ipv6_prefix, &mut identity).ok()?;
        Some(key::describe_identity(&identity))
    }

    pub(crate) fn matcher(&self) -> &Matcher {
        &self.matcher
    }

    pub(crate) fn ipv6_prefix(&self) -> u8 {
        self.ipv6_prefix
    }
}

/// Everything that is wrong with a rule file; shown as one line a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct RulesError(pub Vec<Fault>);

fn lines(faults: &[Fault]) -> String {
    let lines: Vec<_> = faults.iter().map(Fault::to_string).collect();
    lines.join("\n")
}
