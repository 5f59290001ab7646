//! The requests that new rules decide differently than old ones.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::{AddAssign, Range};

use fluxgate_core::key::describe_identity;
use fluxgate_core::{Decision, RuleSets, RuleVerdict, Timestamp};

use crate::event::RecordedRequest;
use crate::replay::Replay;
use crate::summary::{keep_most, rule_name};
use crate::time::format_rfc3339;

/// Listed instead of a rule if a request is denied because its rule set does not exist.
const NO_RULE_SET: &str = "(no such rule set)";

/// The requests that new rules decide differently than old ones, by rule and identity.
/// Displayed as tables.
///
/// A request that is newly denied counts for each of the new rules that deny it, and one
/// that is newly admitted for each of the old rules that denied it. Rules are the same if
/// their sets and their ids have the same names.
#[derive(Debug, Default)]
pub struct Changes {
    /// By name, including rules that change nothing.
    rules: BTreeMap<String, ChangedRule>,
    total: ChangeCounts,
}

/// How many requests are decided differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Requests that the old rules admit and the new ones deny.
    pub newly_denied: u64,
    /// Requests that the old rules deny and the new ones admit.
    pub newly_admitted: u64,
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The old rules admit the request, the new ones deny it.
    NewlyDenied,
    /// The old rules deny the request, the new ones admit it.
    NewlyAdmitted,
}

/// Whether a rule is in the old rules, in the new rules, or in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// In both.
    #[default]
    Both,
    /// Only in the new rules.
    Added,
    /// Only in the old rules.
    Removed,
}

/// The changes that one rule causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleChange<'a> {
    /// The name of the rule, `SET/RULE`.
    pub rule: &'a str,
    /// Whether both the old and the new rules have it.
    pub presence: Presence,
    /// The requests that it newly denies.
    pub newly_denied: u64,
    /// The number of identities that it newly denies.
    pub newly_denied_identities: u64,
    /// The requests that it no longer denies, and that are admitted.
    pub newly_admitted: u64,
    /// The number of identities of these requests.
    pub newly_admitted_identities: u64,
}

/// An identity whose requests are decided differently because of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedIdentity<'a> {
    /// The name of the rule, `SET/RULE`.
    pub rule: &'a str,
    /// The identity in readable form. API keys are shown by their ends only.
    pub identity: String,
    /// The identity as it is encoded.
    pub encoded: &'a [u8],
    /// How many of its requests are decided differently.
    pub requests: u64,
    /// The time of the first of them.
    pub first: Timestamp,
}

#[derive(Debug, Default)]
struct ChangedRule {
    presence: Presence,
    denied: ChangedRequests,
    admitted: ChangedRequests,
}

/// Requests that a rule denies in one version only.
#[derive(Debug, Default)]
struct ChangedRequests {
    requests: u64,
    /// The number of requests and the time of the first, by encoded identity. Requests that
    /// lack a part of the key have no identity.
    identities: HashMap<Box<[u8]>, (u64, Timestamp)>,
}

impl Changes {
    /// Creates the changes of no requests.
    fn new(old: &RuleSets, new: &RuleSets) -> Self {
        let mut changes = Self::default();
        for (rules, presence) in [(old, Presence::Removed), (new, Presence::Added)] {
            for set in rules.iter() {
                for rule in set.rules() {
                    let name = rule_name(set.name(), rule.id());
                    changes
                        .rules
                        .entry(name)
                        .and_modify(|rule| rule.presence = Presence::Both)
                        .or_insert_with(|| ChangedRule {
                            presence,
                            ..ChangedRule::default()
                        });
                }
            }
        }
        changes
    }

    /// Counts a request that is decided differently, with the rules that deny it in one
    /// version.
    fn record(&mut self, change: Change, rule_set: &str, at: Timestamp, refusals: &Refusals) {
        self.total.record(change);
        if refusals.is_empty() {
            self.requests_mut(NO_RULE_SET.to_owned(), change).requests += 1;
        }
        for Refusal { rule, identity } in refusals.iter() {
            let changed = self.requests_mut(rule_name(rule_set, rule), change);
            changed.requests += 1;
            let Some(identity) = identity else { continue };
            match changed.identities.get_mut(identity) {
                Some((count, first)) => {
                    *count += 1;
                    *first = at.min(*first);
                }
                None => {
                    changed.identities.insert(identity.into(), (1, at));
                }
            }
        }
    }

    fn requests_mut(&mut self, rule: String, change: Change) -> &mut ChangedRequests {
        let rule = self.rules.entry(rule).or_default();
        match change {
            Change::NewlyDenied => &mut rule.denied,
            Change::NewlyAdmitted => &mut rule.admitted,
        }
    }

    /// Returns the counts of all requests together.
    pub fn total(&self) -> ChangeCounts {
        self.total
    }

    /// Returns every rule of both versions, by name.
    pub fn rules(&self) -> impl Iterator<Item = RuleChange<'_>> {
        self.rules.iter().map(|(name, rule)| RuleChange {
            rule: name,
            presence: rule.presence,
            newly_denied: rule.denied.requests,
            newly_denied_identities: rule.denied.identities.len() as u64,
            newly_admitted: rule.admitted.requests,
            newly_admitted_identities: rule.admitted.identities.len() as u64,
        })
    }

    /// Returns the ten identities with the most requests of this change, in descending order.
    pub fn identities(&self, change: Change) -> Vec<ChangedIdentity<'_>> {
        let mut all = Vec::new();
        for (name, rule) in &self.rules {
            let changed = match change {
                Change::NewlyDenied => &rule.denied,
                Change::NewlyAdmitted => &rule.admitted,
            };
            let identities = changed.identities.iter();
            all.extend(
                identities
                    .map(|(identity, (count, first))| (*count, name.as_str(), &**identity, *first)),
            );
        }
        let most = keep_most(all).into_iter();
        most.map(|(requests, rule, identity, first)| ChangedIdentity {
            rule,
            identity: describe_identity(identity),
            encoded: identity,
            requests,
            first,
        })
        .collect()
    }
}

impl ChangeCounts {
    /// Counts a request.
    pub(crate) fn record(&mut self, change: Change) {
        match change {
            Change::NewlyDenied => self.newly_denied += 1,
            Change::NewlyAdmitted => self.newly_admitted += 1,
        }
    }
}

impl AddAssign for ChangeCounts {
    fn add_assign(&mut self, other: Self) {
        self.newly_denied += other.newly_denied;
        self.newly_admitted += other.newly_admitted;
    }
}

impl Change {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::NewlyDenied, Self::NewlyAdmitted];

    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewlyDenied => "newly denied",
            Self::NewlyAdmitted => "newly admitted",
        }
    }
}

impl RuleChange<'_> {
    /// Returns the name, with a remark if only one version has the rule.
    fn label(&self) -> String {
        match self.presence {
            Presence::Both => self.rule.to_owned(),
            Presence::Added => format!("{} (added)", self.rule),
            Presence::Removed => format!("{} (removed)", self.rule),
        }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALL: &str = "(all requests)";
        let rules: Vec<_> = self.rules().map(|rule| (rule.label(), rule)).collect();
        let labels = rules.iter().map(|(label, _)| label.as_str()).chain([ALL]);
        let width = labels.map(|label| label.chars().count()).max().unwrap_or(0);
        writeln!(
            f,
            "{:width$}  {:>12}  {:>10}  {:>14}  {:>10}",
            "rule", "newly denied", "identities", "newly admitted", "identities"
        )?;
        for (label, rule) in &rules {
            writeln!(
                f,
                "{label:width$}  {:>12}  {:>10}  {:>14}  {:>10}",
                rule.newly_denied,
                rule.newly_denied_identities,
                rule.newly_admitted,
                rule.newly_admitted_identities
            )?;
        }
        writeln!(
            f,
            "{ALL:width$}  {:>12}  {:>10}  {:>14}",
            self.total.newly_denied, "", self.total.newly_admitted
        )?;
        for change in Change::ALL {
            let identities = self.identities(change);
            if !identities.is_empty() {
                writeln!(f, "\n{:>12}  {} identities", "requests", change.name())?;
            }
            for changed in identities {
                // A log may contain anything; a terminal must not obey it.
                let identity = changed.identity.escape_debug();
                let (requests, rule) = (changed.requests, changed.rule);
                let first = format_rfc3339(changed.first);
                writeln!(f, "{requests:>12}  {rule}  {identity}  (first {first})")?;
            }
        }
        Ok(())
    }
}

/// The enforced rules that refuse one request. Reused for the next request, so a denial
/// needs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// The ranges of id and identity in `bytes`.
    ranges: Vec<(Range<usize>, Option<Range<usize>>)>,
    bytes: Vec<u8>,
}

/// A rule that refuses a request.
#[derive(Debug, PartialEq, Eq)]
struct Refusal<'a> {
    /// The id of the rule.
    rule: &'a str,
    /// The encoded identity; none if a part of the key is missing.
    identity: Option<&'a [u8]>,
}

impl Refusals {
    /// Removes all rules, for the next request.
    fn clear(&mut self) {
        self.ranges.clear();
        self.bytes.clear();
    }

    /// Adds a rule if it is enforced and refuses the request.
    pub(crate) fn add(&mut self, verdict: &RuleVerdict<'_>) {
        if !verdict.denied || verdict.is_shadow {
            return;
        }
        let rule = self.store(verdict.rule.id().as_bytes());
        let identity = verdict.identity.map(|identity| self.store(identity));
        self.ranges.push((rule, identity));
    }

    fn store(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = Refusal<'_>> {
        self.ranges.iter().map(|(rule, identity)| Refusal {
            // Ids are text, and stored whole.
            rule: str::from_utf8(&self.bytes[rule.clone()]).unwrap_or_default(),
            identity: identity.clone().map(|identity| &self.bytes[identity]),
        })
    }
}

/// The old rules with their own state, and the requests that they decide differently.
#[derive(Debug)]
pub(crate) struct OldRules {
    pub(crate) replay: Replay,
    /// The only rule set, if there is only one.
    only_set: Option<String>,
    pub(crate) changes: Changes,
    /// The new rules that refuse the current request.
    pub(crate) by_new: Refusals,
    /// The old rules that refuse it.
    by_old: Refusals,
}

impl OldRules {
    pub(crate) fn new(old: RuleSets, new: &RuleSets) -> Self {
        Self {
            only_set: old.only().map(|set| set.name().to_owned()),
            changes: Changes::new(&old, new),
            by_new: Refusals::default(),
            by_old: Refusals::default(),
            replay: Replay::new(old),
        }
    }

    /// Decides a request that the new rules have decided under `rule_set`, and returns the
    /// change, if there is one.
    pub(crate) fn compare(
        &mut self,
        rule_set: &str,
        request: &RecordedRequest<'_>,
        at: Timestamp,
        new: &Decision,
    ) -> Option<Change> {
        let old_set = match &self.only_set {
            // The set may have been renamed.
            Some(only) if request.rule_set.is_none() => only,
            _ => rule_set,
        };
        let by_old = &mut self.by_old;
        let limiter = &self.replay.limiter;
        let old = limiter.check_at_reporting(old_set, &request.context, at, |verdict| {
            by_old.add(&verdict);
        });
        let (change, set, refusals) = match (old.allowed(), new.allowed()) {
            (true, false) => (Some(Change::NewlyDenied), rule_set, &self.by_new),
            (false, true) => (Some(Change::NewlyAdmitted), old_set, &self.by_old),
            _ => (None, old_set, &self.by_old),
        };
        if let Some(change) = change {
            self.changes.record(change, set, at, refusals);
        }
        self.replay.record_hold(request.hold.as_deref(), &old);
        self.by_new.clear();
        self.by_old.clear();
        change
    }
}
