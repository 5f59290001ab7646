//! The counters of a fleet, and the checks of its requests.

use fluxgate_core::Band;
use fluxgate_core::key::RuleNumber;
use fluxgate_core::store::{Checks, Group, Mode, Subject};
use smallvec::SmallVec;

use super::config::FleetRule;
use crate::oracle::Counter;

/// The subjects of a request, one for each rule: the rule and the key.
pub(super) type Subjects = SmallVec<[[u8; 5]; 2]>;

/// The counters of a request, in the order of its checks.
pub(super) type Counters = SmallVec<[Counter; 4]>;

/// The counters of all rules and keys.
#[derive(Debug)]
pub(super) struct Plan<'s> {
    rules: Vec<PlannedRule<'s>>,
    /// The bands of all rules.
    pub(super) bands: Vec<&'s Band>,
    /// The number of counters.
    pub(super) counters: usize,
}

#[derive(Debug)]
struct PlannedRule<'s> {
    rule: &'s FleetRule,
    first_counter: usize,
    first_band: usize,
}

impl<'s> Plan<'s> {
    pub(super) fn new(rules: &'s [FleetRule], keys: u32) -> Self {
        let mut plan = Self {
            rules: Vec::new(),
            bands: Vec::new(),
            counters: 0,
        };
        for rule in rules {
            plan.rules.push(PlannedRule {
                rule,
                first_counter: plan.counters,
                first_band: plan.bands.len(),
            });
            let keys = if rule.is_global { 1 } else { keys };
            plan.counters += keys as usize * rule.bands.len();
            plan.bands.extend(&rule.bands);
        }
        plan
    }

    pub(super) fn subjects(&self, key: u32) -> Subjects {
        let subject = |(number, planned): (usize, &PlannedRule<'_>)| {
            let key = if planned.rule.is_global { 0 } else { key };
            let [a, b, c, d] = key.to_le_bytes();
            // A fleet has a few rules.
            [number as u8, a, b, c, d]
        };
        self.rules.iter().enumerate().map(subject).collect()
    }

    pub(super) fn checks<'c>(&'c self, subjects: &'c Subjects, cost: u64) -> Checks<'c> {
        let mut checks = Checks::new(Mode::Take);
        for (planned, subject) in self.rules.iter().zip(subjects) {
            let subject = Subject {
                rule: RuleNumber::NONE,
                bytes: subject,
            };
            checks.push(subject, &planned.rule.bands, cost, Group::ENFORCED);
        }
        checks
    }

    pub(super) fn counters(&self, key: u32) -> Counters {
        let mut counters = Counters::new();
        for planned in &self.rules {
            let key = if planned.rule.is_global { 0 } else { key };
            counters.extend(planned.counters(key));
        }
        counters
    }

    /// Returns the counter of a subject that [`Plan::subjects`] made.
    pub(super) fn counter_of(&self, subject: &[u8], band: &Band) -> Option<Counter> {
        let [number, key @ ..] = subject.first_chunk::<5>()?;
        let planned = self.rules.get(usize::from(*number))?;
        let mut counters = planned.counters(u32::from_le_bytes(*key));
        counters.find(|counter| self.bands[counter.band].id() == band.id())
    }
}

impl PlannedRule<'_> {
    fn counters(&self, key: u32) -> impl Iterator<Item = Counter> {
        let bands = self.rule.bands.len();
        (0..bands).map(move |band| Counter {
            index: self.first_counter + key as usize * bands + band,
            band: self.first_band + band,
        })
    }
}
