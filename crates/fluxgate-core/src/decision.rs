//! The answer, and how the verdicts of many bands become one.

mod waiting;

use std::fmt;
use std::ops::Range;
use std::slice;

use smallvec::SmallVec;

use crate::algorithm::{Charged, Verdict};
use crate::plan::{Applied, Ends, Plan};
use crate::rules::{ActiveRuleSet, Band, Rule, RuleSet};
use crate::time::{Micros, Retry, Timestamp};

/// What stands in the place of a band where a rule refused because its key was
/// missing.
pub(crate) const MISSING_KEY: &str = "missing_key";

/// What a failed-closed denial tells a client to wait.
const FAILED_CLOSED_RETRY: Micros = Micros::new(1_000_000);

/// How a request fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Every rule let it pass.
    Allowed,
    /// A band refused it, for now.
    Denied,
    /// It can never pass.
    Never,
    /// It passes; a shadow rule would have refused it.
    ShadowDenied,
    /// No rule matched.
    NoRule,
    /// The store failed, and the rule set lets pass then.
    FailedOpen,
    /// The store failed, and the rule set refuses then.
    FailedClosed,
    /// The store failed, and the embedded engine decided.
    Fallback,
}

impl Outcome {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::Allowed,
        Self::Denied,
        Self::Never,
        Self::ShadowDenied,
        Self::NoRule,
        Self::FailedOpen,
        Self::FailedClosed,
        Self::Fallback,
    ];

    /// Whether a request that passes with this outcome is charged.
    pub const fn charges(self) -> bool {
        matches!(self, Self::Allowed | Self::ShadowDenied | Self::Fallback)
    }

    /// Whether it comes of a store that failed.
    pub const fn is_store_failure(self) -> bool {
        matches!(self, Self::FailedOpen | Self::FailedClosed | Self::Fallback)
    }

    /// The name that every interface gives it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Never => "never",
            Self::ShadowDenied => "shadow_denied",
            Self::NoRule => "no_rule",
            Self::FailedOpen => "failed_open",
            Self::FailedClosed => "failed_closed",
            Self::Fallback => "fallback",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub struct Decision {
    allowed: bool,
    outcome: Outcome,
    /// Whose rules the indices below speak of; `None` where there is no such set.
    set: Option<ActiveRuleSet>,
    reported: Option<BandRef>,
    remaining: Option<u64>,
    retry_after: Retry,
    /// When the reported band was asked.
    at: Timestamp,
    reset_after: Micros,
    delay: Micros,
    /// What each band said, where there is a delay; empty where there is none.
    held: Vec<Held>,
    applied: SmallVec<[AppliedRule; 4]>,
    violated: SmallVec<[BandRef; 2]>,
}

/// A rule that was decided.
#[derive(Clone, Debug)]
struct AppliedRule {
    rule: u32,
    bands: Range<u32>,
    refuses: bool,
}

/// What a band said of a request that it let pass.
#[derive(Clone, Copy, Debug)]
struct Held {
    band: BandRef,
    at: Timestamp,
    delay: Micros,
    reset_after: Micros,
    charged: Charged,
}

/// A band of a rule of the set; `None` stands for the key that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BandRef {
    rule: u32,
    band: Option<u32>,
}

/// A band that refused, shown as `rule/band`.
#[derive(Clone, Copy, Debug)]
pub struct Violation<'d> {
    /// The rule.
    pub rule: &'d Rule,
    /// The band; `None` where the rule refused because its key was missing.
    pub band: Option<&'d Band>,
}

impl fmt::Display for Violation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let band = self.band.map_or(MISSING_KEY, Band::id);
        write!(f, "{}/{band}", self.rule.id())
    }
}

impl Decision {
    /// Whether the request may go on, after [`Decision::delay`].
    pub fn allowed(&self) -> bool {
        self.allowed
    }

    /// How it fared.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The rule that is reported: of a denial the one to wait longest for, else
    /// the one with the least left.
    pub fn rule(&self) -> Option<&Rule> {
        Some(self.resolve(self.reported?)?.rule)
    }

    /// The band that is reported.
    pub fn band(&self) -> Option<&Band> {
        self.resolve(self.reported?)?.band
    }

    /// The capacity of the reported band.
    pub fn limit(&self) -> Option<u64> {
        self.band().map(|band| band.limit().capacity())
    }

    /// Whole units left in the reported band.
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// How long until the same request would pass; zero where it did.
    pub fn retry_after(&self) -> Retry {
        self.retry_after
    }

    /// How long until the reported band is full again.
    pub fn reset_after(&self) -> Micros {
        self.reset_after
    }

    /// When the reported band is full again, by the clock of the store.
    pub fn reset_at(&self) -> Timestamp {
        let micros = self.at.micros().saturating_add(self.reset_after.get());
        Timestamp::saturating_from_micros(micros)
    }

    /// How long an allowed request must wait before it goes on.
    pub fn delay(&self) -> Micros {
        self.delay
    }

    /// The bands that refused, in the order of evaluation. Of an allowed
    /// request they are those of shadow rules.
    pub fn violated(&self) -> impl Iterator<Item = Violation<'_>> {
        self.violated.iter().filter_map(|band| self.resolve(*band))
    }

    /// The rules that were decided, each with whether it refused.
    pub fn rules(&self) -> impl Iterator<Item = (&Rule, bool)> {
        let set = self.set.as_deref();
        self.applied.iter().filter_map(move |applied| {
            let rule = set?.rules().get(applied.rule as usize)?;
            Some((rule, applied.refuses))
        })
    }

    /// Every band that was decided, with its rule.
    pub fn bands(&self) -> impl Iterator<Item = (&Rule, &Band)> {
        let set = self.set.as_deref();
        self.applied.iter().flat_map(move |applied| {
            applied.bands.clone().filter_map(move |band| {
                let rule = set?.rules().get(applied.rule as usize)?;
                Some((rule, rule.band(band)?))
            })
        })
    }

    /// The rule set that was asked, if there is one of that name.
    pub fn rule_set(&self) -> Option<&RuleSet> {
        self.set.as_deref()
    }

    /// The request passes because nobody could decide.
    pub fn failed_open() -> Self {
        Self::plain(true, Outcome::FailedOpen, Retry::NOW)
    }

    /// The request is refused because nobody could decide.
    pub fn failed_closed() -> Self {
        Self::plain(
            false,
            Outcome::FailedClosed,
            Retry::After(FAILED_CLOSED_RETRY),
        )
    }

    /// The request is refused, whenever it comes, and by no rule.
    pub fn never() -> Self {
        Self::plain(false, Outcome::Never, Retry::Never)
    }

    fn resolve(&self, band: BandRef) -> Option<Violation<'_>> {
        let rule = self.set.as_ref()?.rules().get(band.rule as usize)?;
        let band = match band.band {
            Some(index) => Some(rule.band(index)?),
            None => None,
        };
        Some(Violation { rule, band })
    }

    /// No rule matched, or there is no such set and that is no reason to refuse.
    pub(crate) fn no_rule() -> Self {
        Self::plain(true, Outcome::NoRule, Retry::NOW)
    }

    /// A decision without a rule behind it.
    pub(crate) fn plain(allowed: bool, outcome: Outcome, retry_after: Retry) -> Self {
        Self {
            allowed,
            outcome,
            set: None,
            reported: None,
            remaining: None,
            retry_after,
            at: Timestamp::default(),
            reset_after: Micros::ZERO,
            delay: Micros::ZERO,
            held: Vec::new(),
            applied: SmallVec::new(),
            violated: SmallVec::new(),
        }
    }

    /// The same decision, made by the embedded engine in the store's stead.
    pub(crate) fn into_fallback(mut self) -> Self {
        self.outcome = Outcome::Fallback;
        self
    }

    /// Says whose rules it speaks of, which [`Decision::combine`] leaves open.
    pub(crate) fn belongs_to(&mut self, set: ActiveRuleSet) {
        self.set = Some(set);
    }

    /// What the verdicts on a plan come to.
    pub(crate) fn combine(plan: &Plan<'_>, verdicts: &[Verdict]) -> Self {
        if plan.applied.is_empty() {
            return Self::no_rule();
        }
        let mut decision = Self::plain(true, Outcome::Allowed, Retry::NOW);
        let all = verdicts;
        let mut verdicts = all.iter();
        for applied in plan.applied.iter().filter(|applied| !applied.shadow) {
            decision.add_enforced(applied, &mut verdicts);
        }
        if !decision.allowed {
            return decision;
        }
        for applied in plan.applied.iter().filter(|applied| applied.shadow) {
            decision.add_shadow(applied, &mut verdicts);
        }
        decision.note_held(all);
        decision
    }

    /// What the verdicts on a plan of several requests come to, for each of
    /// them. The ends tell where what each of them asks ends.
    pub(crate) fn combine_all(
        plan: &Plan<'_>,
        (enforced, shadow): &(Ends, Ends),
        verdicts: &[Verdict],
    ) -> Vec<Self> {
        let mut verdicts = verdicts.iter();
        let mut start = 0;
        let mut decisions = Vec::with_capacity(enforced.len());
        for &end in enforced {
            let mut decision = Self::plain(true, Outcome::Allowed, Retry::NOW);
            let of_this = verdicts.as_slice();
            for applied in &plan.applied[start..end] {
                decision.add_enforced(applied, &mut verdicts);
            }
            decision.note_held(of_this);
            start = end;
            decisions.push(decision);
        }
        let decided = decisions.iter().all(|decision| decision.allowed);
        for (decision, &end) in decisions.iter_mut().zip(shadow) {
            let shadow = &plan.applied[start..end];
            start = end;
            if decision.applied.is_empty() && shadow.is_empty() {
                decision.outcome = Outcome::NoRule;
            }
            for applied in shadow.iter().filter(|_| decided) {
                decision.add_shadow(applied, &mut verdicts);
            }
        }
        decisions
    }

    /// Notes what each band said of a request that has to wait, for what it took
    /// may have to be given back. The verdicts are those of what was applied.
    fn note_held(&mut self, verdicts: &[Verdict]) {
        if self.delay == Micros::ZERO {
            return;
        }
        let bands = self.applied.iter().flat_map(|applied| {
            let rule = applied.rule;
            let bands = applied.bands.clone();
            bands.map(move |band| BandRef {
                rule,
                band: Some(band),
            })
        });
        let held = bands.zip(verdicts).map(|(band, verdict)| Held {
            band,
            at: verdict.at,
            delay: verdict.delay,
            reset_after: verdict.reset_after,
            charged: Charged::by(verdict),
        });
        self.held = held.collect();
    }

    fn add_enforced(&mut self, applied: &Applied, verdicts: &mut slice::Iter<'_, Verdict>) {
        let before = self.violated.len();
        if applied.bands.is_empty() {
            let missing = Verdict {
                at: Timestamp::default(),
                remaining: 0,
                part: 0,
                retry_after: Retry::Never,
                reset_after: Micros::ZERO,
                delay: Micros::ZERO,
            };
            self.add_band(applied.rule, None, &missing);
        }
        for (band, verdict) in applied.bands.clone().zip(verdicts) {
            self.add_band(applied.rule, Some(band), verdict);
        }
        self.applied.push(AppliedRule {
            rule: applied.rule,
            bands: applied.bands.clone(),
            refuses: self.violated.len() > before,
        });
    }

    fn add_band(&mut self, rule: u32, band: Option<u32>, verdict: &Verdict) {
        let band = BandRef { rule, band };
        // Of equals the first is reported, so only a strictly better one takes over.
        let better = if verdict.passes() {
            if verdict.delay > self.delay {
                self.delay = verdict.delay;
            }
            self.allowed
                && self
                    .remaining
                    .is_none_or(|least| u64::from(verdict.remaining) < least)
        } else {
            self.violated.push(band);
            let first = self.allowed;
            self.allowed = false;
            first || verdict.retry_after > self.retry_after
        };
        if better {
            self.reported = Some(band);
            self.remaining = Some(verdict.remaining.into());
            self.retry_after = verdict.retry_after;
            self.at = verdict.at;
            self.reset_after = verdict.reset_after;
        }
        if !self.allowed {
            self.delay = Micros::ZERO;
            self.outcome = match self.retry_after {
                Retry::Never => Outcome::Never,
                Retry::After(_) => Outcome::Denied,
            };
        }
    }

    fn add_shadow(&mut self, applied: &Applied, verdicts: &mut slice::Iter<'_, Verdict>) {
        let before = self.violated.len();
        let rule = applied.rule;
        if applied.bands.is_empty() {
            self.violated.push(BandRef { rule, band: None });
        }
        for (band, verdict) in applied.bands.clone().zip(verdicts) {
            if !verdict.passes() {
                let band = Some(band);
                self.violated.push(BandRef { rule, band });
            }
        }
        let refuses = self.violated.len() > before;
        if refuses {
            self.outcome = Outcome::ShadowDenied;
        }
        self.applied.push(AppliedRule {
            rule,
            bands: applied.bands.clone(),
            refuses,
        });
    }
}
