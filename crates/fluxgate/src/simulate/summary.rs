//! What a whole simulation came to, by rule.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use fluxgate_core::{Decision, Outcome, Rule, RuleMode, RuleSets, RuleVerdict, describe_identity};

const MOST_DENIED: usize = 10;

/// Counts by rule, and who was denied most.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// By name, those that no request met included.
    rules: BTreeMap<String, Counts>,
    all: Counts,
    no_rule: u64,
    /// Denials by rule and encoded identity.
    denied: HashMap<String, HashMap<Box<[u8]>, u64>>,
}

/// How many requests there were, and how many of them did not pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) denied: u64,
    pub(super) shadow_denied: u64,
}

impl Counts {
    pub(super) fn allowed(self) -> u64 {
        self.requests - self.denied
    }
}

impl Summary {
    /// Nothing yet, for each of these rules.
    pub(super) fn new(rules: &RuleSets) -> Self {
        let names = rules.iter().flat_map(|set| {
            let rules = set.rules().iter();
            rules.map(|rule| name(set.name(), rule))
        });
        Self {
            rules: names.map(|name| (name, Counts::default())).collect(),
            ..Self::default()
        }
    }

    /// A rule took a request in this way.
    pub(super) fn noted(&mut self, rule_set: &str, fate: &RuleVerdict<'_>) {
        let rule = fate.rule;
        let (Some(identity), RuleMode::Enforce, true) = (fate.identity, rule.mode(), fate.denied)
        else {
            return;
        };
        let identities = match self.denied.get_mut(&name(rule_set, rule)) {
            Some(known) => known,
            None => self.denied.entry(name(rule_set, rule)).or_default(),
        };
        match identities.get_mut(identity) {
            Some(count) => *count += 1,
            None => {
                identities.insert(identity.into(), 1);
            }
        }
    }

    pub(super) fn decided(&mut self, rule_set: &str, decision: &Decision) {
        self.all.requests += 1;
        self.all.denied += u64::from(!decision.allowed());
        self.all.shadow_denied += u64::from(decision.outcome() == Outcome::ShadowDenied);
        self.no_rule += u64::from(decision.outcome() == Outcome::NoRule);
        for (rule, refused) in decision.rules() {
            let counts = self.rules.entry(name(rule_set, rule)).or_default();
            counts.requests += 1;
            match rule.mode() {
                RuleMode::Enforce => counts.denied += u64::from(refused),
                RuleMode::Shadow => counts.shadow_denied += u64::from(refused),
            }
        }
    }

    /// What a rule came to, by its name `SET/RULE`.
    pub(super) fn of_rule(&self, name: &str) -> Counts {
        self.rules.get(name).copied().unwrap_or_default()
    }

    /// The ten most denied, the most first: how often, by which rule, and who.
    pub(super) fn most_denied(&self) -> Vec<(u64, &str, String)> {
        let mut all: Vec<(u64, &str, &[u8])> = Vec::new();
        for (rule, identities) in &self.denied {
            let counted = identities.iter();
            all.extend(counted.map(|(identity, count)| (*count, rule.as_str(), &**identity)));
        }
        all.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)).then(a.2.cmp(b.2)));
        all.truncate(MOST_DENIED);
        let shown = all.into_iter();
        shown
            .map(|(count, rule, identity)| (count, rule, describe_identity(identity)))
            .collect()
    }
}

fn name(rule_set: &str, rule: &Rule) -> String {
    format!("{rule_set}/{}", rule.id())
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
        for (name, counts) in rows.chain([(ALL, &self.all)]) {
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
        for (count, rule, identity) in most {
            // Logs may hold anything; a terminal shall not obey it.
            let identity = identity.escape_debug();
            writeln!(f, "{count:>12}  {rule}  {identity}")?;
        }
        Ok(())
    }
}
