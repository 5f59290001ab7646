//! The counts of all requests together.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use fluxgate_core::key::describe_identity;
use fluxgate_core::{Decision, Outcome, RuleSets, RuleVerdict};

/// The number of identities in a list of those with the most requests.
const MOST: usize = 10;

/// Counts by rule, and the identities that were denied most. Displayed as a table.
#[derive(Debug, Default)]
pub struct Summary {
    /// By name, with rules that no request matched.
    rules: BTreeMap<String, Counts>,
    total: Counts,
    no_rule: u64,
    /// Denials by rule and encoded identity.
    denied: HashMap<String, HashMap<Box<[u8]>, u64>>,
}

/// How many requests there were, and how many were denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All requests.
    pub requests: u64,
    /// Those that were denied.
    pub denied: u64,
    /// Those that a shadow rule would have denied.
    pub shadow_denied: u64,
}

impl Counts {
    /// Returns how many requests were not denied.
    pub fn allowed(self) -> u64 {
        self.requests - self.denied
    }
}

/// An identity that a rule denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedIdentity<'a> {
    /// The name of the rule, `SET/RULE`.
    pub rule: &'a str,
    /// The identity in readable form. API keys are shown by their ends only.
    pub identity: String,
    /// How often the rule denied it.
    pub denied: u64,
}

impl Summary {
    /// Creates a summary in which every rule has counts of zero.
    pub(crate) fn new(rules: &RuleSets) -> Self {
        let names = rules.iter().flat_map(|set| {
            let rules = set.rules().iter();
            rules.map(|rule| rule_name(set.name(), rule.id()))
        });
        Self {
            rules: names.map(|name| (name, Counts::default())).collect(),
            ..Self::default()
        }
    }

    /// Counts how one rule decided a request.
    pub(crate) fn record_rule(&mut self, rule_set: &str, verdict: &RuleVerdict<'_>) {
        let name = rule_name(rule_set, verdict.rule.id());
        let is_denied = verdict.denied && !verdict.is_shadow;
        if let Some(identity) = verdict.identity.filter(|_| is_denied) {
            self.record_denied(name.clone(), identity);
        }
        let counts = self.rules.entry(name).or_default();
        counts.requests += 1;
        counts.denied += u64::from(is_denied);
        counts.shadow_denied += u64::from(verdict.denied && verdict.is_shadow);
    }

    fn record_denied(&mut self, rule: String, identity: &[u8]) {
        let identities = self.denied.entry(rule).or_default();
        match identities.get_mut(identity) {
            Some(count) => *count += 1,
            None => {
                identities.insert(identity.into(), 1);
            }
        }
    }

    /// Counts a decision.
    pub(crate) fn record_decision(&mut self, decision: &Decision) {
        self.total.requests += 1;
        self.total.denied += u64::from(!decision.allowed());
        self.total.shadow_denied += u64::from(decision.outcome() == Outcome::ShadowDenied);
        self.no_rule += u64::from(decision.outcome() == Outcome::NoRule);
    }

    /// Returns the counts of all requests together.
    pub fn total(&self) -> Counts {
        self.total
    }

    /// Returns the counts of every rule by its name, `SET/RULE`.
    pub fn rules(&self) -> impl Iterator<Item = (&str, Counts)> {
        let rules = self.rules.iter();
        rules.map(|(name, counts)| (name.as_str(), *counts))
    }

    /// Returns the counts of the rule with the name `SET/RULE`.
    pub fn rule(&self, name: &str) -> Counts {
        self.rules.get(name).copied().unwrap_or_default()
    }

    /// Returns the ten identities that were denied most, the most denied first.
    pub fn most_denied(&self) -> Vec<DeniedIdentity<'_>> {
        let mut all = Vec::new();
        for (rule, identities) in &self.denied {
            let counted = identities.iter();
            all.extend(counted.map(|(identity, count)| (*count, rule.as_str(), &**identity, ())));
        }
        let most = keep_most(all)
            .into_iter()
            .map(|(denied, rule, identity, ())| DeniedIdentity {
                rule,
                identity: describe_identity(identity),
                denied,
            });
        most.collect()
    }
}

/// A count with its rule and encoded identity, and more about it.
type IdentityCount<'a, T> = (u64, &'a str, &'a [u8], T);

/// Returns the ten largest counts in descending order. Equal counts are in the order of rule
/// and identity.
pub(crate) fn keep_most<T>(mut counts: Vec<IdentityCount<'_, T>>) -> Vec<IdentityCount<'_, T>> {
    counts.sort_unstable_by(|a, b| b.0.cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    counts.truncate(MOST);
    counts
}

/// Returns the name of a rule, `SET/RULE`.
pub(crate) fn rule_name(rule_set: &str, rule: &str) -> String {
    format!("{rule_set}/{rule}")
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALL: &str = "(all requests)";
        let names = self.rules.keys().map(String::as_str).chain([ALL]);
        let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
        writeln!(
            f,
            "{:width$}  {:>12}  {:>12}  {:>12}  {:>13}",
            "rule", "requests", "allowed", "denied", "shadow-denied"
        )?;
        let rows = self
            .rules
            .iter()
            .map(|(name, counts)| (name.as_str(), counts));
        for (name, counts) in rows.chain([(ALL, &self.total)]) {
            writeln!(
                f,
                "{name:width$}  {:>12}  {:>12}  {:>12}  {:>13}",
                counts.requests,
                counts.allowed(),
                counts.denied,
                counts.shadow_denied
            )?;
        }
        if self.no_rule > 0 {
            writeln!(f, "{} request(s) matched no rule", self.no_rule)?;
        }
        let most = self.most_denied();
        if !most.is_empty() {
            writeln!(f, "\n{:>12}  most denied identities", "denied")?;
        }
        for DeniedIdentity {
            rule,
            identity,
            denied,
        } in most
        {
            // A log may contain anything; a terminal must not obey it.
            let identity = identity.escape_debug();
            writeln!(f, "{denied:>12}  {rule}  {identity}")?;
        }
        Ok(())
    }
}
