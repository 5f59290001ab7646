//! Decisions at any instant, for simulations.

use std::slice;

use super::{Limiter, Shared};
use crate::algorithm::Mode;
use crate::band::Band;
use crate::clock::Clock;
use crate::context::RequestContext;
use crate::decision::Decision;
use crate::hold::{HoldId, Settled, Settlement};
use crate::key::{IdentityRef, StoredIdentity, Subject};
use crate::memory::MemoryStore;
use crate::plan::Plan;
use crate::rules::{ActiveRule, ActiveRuleSet};
use crate::store::{Checks, Group};
use crate::time::{Micros, Timestamp};

impl<C: Clock> Limiter<MemoryStore<C>> {
    /// Settles a hold at the instant `now`, whatever the store's clock shows.
    pub fn settle_at(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Option<Settled> {
        self.0.store.settle_at(hold, settlement, now)
    }

    /// Decides a request at the instant `now`, whatever the store's clock shows.
    pub fn check_at(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        now: Timestamp,
    ) -> Decision {
        self.check_at_reporting(rule_set, context, now, |_| {})
    }

    /// Decides like [`Limiter::check_at`], and calls `report` for every rule that was
    /// decided.
    pub fn check_at_reporting(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        now: Timestamp,
        mut report: impl FnMut(RuleVerdict<'_>),
    ) -> Decision {
        let rules = self.0.rules.load();
        let Some(set) = rules.get(rule_set) else {
            // Simulations report these themselves.
            let Shared {
                missing, observers, ..
            } = &*self.0;
            return missing.decide(rule_set, &rules, observers, true);
        };
        let mut plan = Plan::new(Mode::Take);
        plan.fill(set, context, &|| now);
        let verdicts = self.0.store.decide_at(&plan.checks(set), now);
        let mut decision = Decision::combine(&plan, &verdicts);
        decision.set_rule_set(ActiveRuleSet::of(set));
        if plan.action(0).is_some() {
            for (rule, denied) in decision.rules() {
                report(RuleVerdict {
                    rule,
                    identity: None,
                    denied,
                    delay: Micros::ZERO,
                    is_shadow: false,
                    units: 0,
                    is_overridden: false,
                });
            }
        }
        let mut verdicts = verdicts.iter();
        for ((rule, denied), applied) in decision.rules().zip(&plan.applied) {
            let verdicts = verdicts.by_ref().take(applied.bands.len());
            let delay = verdicts.map(|verdict| verdict.delay).max();
            let delays = decision.allowed() && !applied.is_shadow();
            let has_key = !applied.bands.is_empty();
            report(RuleVerdict {
                rule,
                identity: has_key.then(|| plan.identity(applied, rule)),
                denied,
                delay: delay.filter(|_| delays).unwrap_or_default(),
                is_shadow: applied.is_shadow(),
                units: applied.cost,
                is_overridden: applied.bands.start > 0,
            });
        }
        decision
    }

    /// Calls `report` for every rule that counts a request at the instant `now`, without deciding
    /// it. Nothing is reported where an action rule decides, or where the rule set does not exist.
    pub fn counted_at(
        &self,
        rule_set: &str,
        context: &RequestContext<'_>,
        now: Timestamp,
        mut report: impl FnMut(CountingRule<'_>),
    ) {
        let rules = self.0.rules.load();
        let Some(set) = rules.get(rule_set) else {
            return;
        };
        let mut plan = Plan::new(Mode::Peek);
        plan.fill(set, context, &|| now);
        for applied in plan.applied.iter().filter(|it| !it.bands.is_empty()) {
            let rule = &set.rules()[applied.rule as usize];
            report(CountingRule {
                rule,
                identity: plan.identity(applied, rule),
                bands: rule.bands_in(&applied.bands),
                is_shadow: applied.is_shadow(),
                units: applied.cost,
            });
        }
    }

    /// Charges units to one band of an encoded identity of a rule at the instant `now`, whatever
    /// the store's clock shows. Returns whether they fit; otherwise nothing is charged.
    pub fn charge_at(&self, target: BandTarget<'_>, units: u64, now: Timestamp) -> bool {
        let BandTarget {
            rule_set,
            rule,
            identity,
            band,
        } = target;
        let rules = self.0.rules.load();
        let Some(set) = rules.get(rule_set) else {
            return false;
        };
        let Some(rule) = set.rule(rule) else {
            return false;
        };
        let stored = StoredIdentity::new(rule_set, rule.id(), identity, |_| None);
        let identity = IdentityRef::Stored(&stored);
        let Ok(found) = rule.subject_of(identity, set.ipv6_prefix(), |_| None, || now) else {
            return false;
        };
        let mut bands = rule.bands_in(&found.bands).iter();
        let Some(band) = bands.find(|it| it.id() == band) else {
            return false;
        };
        let subject = Subject {
            rule: rule.number(),
            bytes: &found.subject,
        };
        let mut checks = Checks::new(Mode::Take);
        checks.push(subject, slice::from_ref(band), units, Group::ENFORCED);
        let verdicts = self.0.store.decide_at(&checks, now);
        verdicts.first().is_some_and(|verdict| verdict.passes())
    }
}

/// A rule that counts a request.
#[derive(Clone, Copy, Debug)]
pub struct CountingRule<'a> {
    /// The rule.
    pub rule: &'a ActiveRule,
    /// The encoded identity that it counts.
    pub identity: &'a [u8],
    /// The bands of the identity.
    pub bands: &'a [Band],
    /// Whether it only reports what it would do to this request.
    pub is_shadow: bool,
    /// The units that the request asks it for.
    pub units: u64,
}

/// A band of an identity of a rule.
#[derive(Clone, Copy, Debug)]
pub struct BandTarget<'a> {
    /// The name of the rule set.
    pub rule_set: &'a str,
    /// The id of the rule.
    pub rule: &'a str,
    /// The identity, encoded.
    pub identity: &'a [u8],
    /// The id of the band.
    pub band: &'a str,
}

/// The verdict of one rule on a request.
#[derive(Clone, Copy, Debug)]
pub struct RuleVerdict<'a> {
    /// The rule.
    pub rule: &'a ActiveRule,
    /// The encoded identity that it counts; `None` if a part of its key is missing, or it
    /// decides by itself.
    pub identity: Option<&'a [u8]>,
    /// Whether it denies the request, or would if it were not a shadow rule.
    pub denied: bool,
    /// How long it makes the request wait; zero if the request is denied, and for a
    /// shadow rule.
    pub delay: Micros,
    /// Whether it only reports what it would do to this request.
    pub is_shadow: bool,
    /// The units that the request asks it for.
    pub units: u64,
    /// Whether the identity has bands of its own, by an override.
    pub is_overridden: bool,
}
