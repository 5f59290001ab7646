//! The decision on a request.

mod charge;
mod combine;
mod outcome;
mod rule_outcome;
mod uses;
mod waiting;

use std::fmt;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use smallvec::SmallVec;

use crate::algorithm::Charged;
use crate::band::Band;
use crate::hold::{DEFAULT_HOLD, HoldId};
use crate::limit::Algorithm;
use crate::rules::{ActiveRule, ActiveRuleSet, RuleAction, RuleSet};
use crate::time::{Micros, Retry, Timestamp};
pub use charge::Charge;
use outcome::WaitStatus;
pub use outcome::{Outcome, WaitRefusal};
pub use rule_outcome::RuleOutcome;

/// The wait of a request that is denied because the store failed.
const FAILED_CLOSED_RETRY: Micros = Micros::new(1_000_000);

/// The decision on one request.
///
/// ```
/// use std::time::Duration;
///
/// use fluxgate_core::{Limiter, ManualClock, MemoryStore, Outcome, Quota, RequestContext};
/// use fluxgate_core::{Rule, RuleSet};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule = Rule::new("per-user").per_user().band(Quota::per_minute(1));
/// let rules = RuleSet::builder("api").rule(rule).build()?;
/// let limiter = Limiter::new(rules, MemoryStore::with_clock(ManualClock::default()));
/// let api = limiter.rule_set("api")?;
/// let ann = RequestContext::builder().user("ann").build();
/// assert!(api.check_sync(&ann).allowed());
///
/// let denied = api.check_sync(&ann);
/// assert_eq!(denied.outcome(), Outcome::Denied);
/// assert_eq!((denied.limit(), denied.remaining()), (Some(1), Some(0)));
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(60)));
/// assert_eq!(denied.violated().next().unwrap().to_string(), "per-user/b0");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a decision may deny the request"]
pub struct Decision {
    allowed: bool,
    outcome: Outcome,
    /// The rules that the indices below refer to; `None` if there is no such set.
    set: Option<ActiveRuleSet>,
    reported: Option<BandRef>,
    remaining: Option<u64>,
    retry_after: Retry,
    /// When the reported band was decided.
    at: Timestamp,
    reset_after: Micros,
    delay: Micros,
    /// What each band reserved, if there is a delay; empty if there is none.
    reservations: Vec<BandReservation>,
    /// The id by which any process can cancel the reservation.
    pub(crate) reservation: Option<HoldId>,
    rules: SmallVec<[DecidedRule; 4]>,
    violated: SmallVec<[BandRef; 2]>,
    hold: Option<DecisionHold>,
    /// The units left in each enforced band, if the request has a hold.
    levels: Vec<(BandRef, u64, Micros)>,
    /// The use of each enforced band of the rules that report it. Two need no allocation.
    uses: SmallVec<[RecordedUse; 2]>,
    wait: WaitStatus,
    /// Whether the request passes by itself, but was not charged, because another one of the same
    /// call is denied.
    is_uncharged: bool,
}

#[derive(Clone, Debug)]
struct DecidedRule {
    rule: u32,
    bands: Range<u32>,
    /// Whether it was decided as a shadow rule, which with a rollout depends on the identity.
    is_shadow: bool,
    denies: bool,
    /// Whether the rule by itself would never let the request pass.
    is_never: bool,
}

/// The hold of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DecisionHold {
    id: HoldId,
    /// Its requested lifetime.
    requested: Option<Micros>,
}

/// What a band reserved for a request that has to wait.
#[derive(Clone, Copy, Debug)]
struct BandReservation {
    band: BandRef,
    at: Timestamp,
    delay: Micros,
    reset_after: Micros,
    charged: Charged,
}

/// A band of a rule of the set; `None` stands for a missing part of the key, or for the action of
/// a rule that decides by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BandRef {
    rule: u32,
    band: Option<u32>,
}

/// The level of a band after a decision.
#[derive(Clone, Copy, Debug)]
pub struct BandLevel<'d> {
    /// The rule.
    pub rule: &'d ActiveRule,
    /// The band.
    pub band: &'d Band,
    /// Whole units left.
    pub remaining: u64,
    /// The time until it is full again.
    pub reset_after: Micros,
}

/// The use of a band after a decision, if its rule has [`Rule::notify`](crate::Rule::notify).
///
/// A share of the limit is reached if `used` is at least
/// [`Percent::reached_at`](crate::Percent::reached_at) of its capacity. If `used_before` was less,
/// this decision reached it, and no other one did: a store makes all decisions on a band one after
/// the other.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BandUse<'d> {
    /// The rule.
    pub rule: &'d ActiveRule,
    /// The band, that of an override included.
    pub band: &'d Band,
    /// When it was decided, by the clock of the store.
    pub at: Timestamp,
    /// Whole units in use: the capacity less those left.
    pub used: u64,
    /// Whole units in use before this decision. `None` if that is not known: the band leases its
    /// units, so the rest is an estimate; the request waits for units of the future; or it was
    /// denied and charged nevertheless. In the last two cases the band may owe, and units that are
    /// owed are not among those in use.
    pub used_before: Option<u64>,
    /// The time until it is full again.
    pub reset_after: Micros,
}

/// A [`BandUse`] as a decision keeps it.
#[derive(Clone, Copy, Debug)]
struct RecordedUse {
    band: BandRef,
    at: Timestamp,
    remaining: u32,
    reset_after: Micros,
    /// The units of the request; `None` if it was not charged because it was denied.
    charged: Option<u64>,
    /// Whether the request waits.
    is_delayed: bool,
}

/// A band that denies a request, displayed as `rule/band`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Violation<'d> {
    /// The rule.
    pub rule: &'d ActiveRule,
    /// The band; `None` if the rule denies what it matches, or because a part of its key is
    /// missing.
    pub band: Option<&'d Band>,
}

impl<'d> Violation<'d> {
    /// Returns the id of the band, or what the rule denies for in its place: `deny` or
    /// `missing_key`.
    pub fn band_id(&self) -> &'d str {
        match self.band {
            Some(band) => band.id(),
            None if self.rule.action().decides() => Band::DENY,
            None => Band::MISSING_KEY,
        }
    }
}

impl fmt::Display for Violation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.rule.id(), self.band_id())
    }
}

impl Decision {
    /// Returns whether the request may go on, after [`Decision::delay`].
    pub fn allowed(&self) -> bool {
        self.allowed
    }

    /// Returns the outcome.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns the reported rule: the one whose action decided; else of a denial the one with
    /// the longest wait, otherwise the one with the least left.
    pub fn rule(&self) -> Option<&ActiveRule> {
        Some(self.resolve(self.reported?)?.rule)
    }

    /// Returns the reported band.
    pub fn band(&self) -> Option<&Band> {
        self.resolve(self.reported?)?.band
    }

    /// Returns the capacity of the reported band.
    pub fn limit(&self) -> Option<u64> {
        self.band().map(|band| band.limit().capacity())
    }

    /// Returns the whole units left in the reported band.
    pub fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// Returns the time until the same request would pass: zero if it passes, `None` if it
    /// never will, because it costs more than the limit ever holds, or a rule forbids it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.after().map(Duration::from)
    }

    /// Returns the time until the reported band is full again.
    pub fn reset_after(&self) -> Duration {
        self.reset_after.into()
    }

    /// Returns the instant at which the reported band is full again, by the clock of the
    /// store.
    pub fn reset_at(&self) -> SystemTime {
        self.reset_timestamp().into()
    }

    /// Returns how long an allowed request must wait before it goes on.
    pub fn delay(&self) -> Duration {
        self.delay.into()
    }

    /// Returns the hold of the charge, if the request asked for one or took slots, and
    /// something was charged.
    pub fn hold(&self) -> Option<HoldId> {
        self.hold.map(|hold| hold.id)
    }

    /// Returns how long its hold lives if it is not renewed.
    pub fn hold_span(&self) -> Micros {
        self.slot_spans()
            .max()
            .unwrap_or_else(|| self.requested_span())
    }

    /// Returns how soon its hold must be renewed, so that none of its slots expires.
    pub fn renew_within(&self) -> Micros {
        self.slot_spans()
            .min()
            .unwrap_or_else(|| self.requested_span())
    }

    /// Returns how long the slots of each band live.
    fn slot_spans(&self) -> impl Iterator<Item = Micros> {
        let limits = self.bands().map(|(_, band)| band.limit());
        let slots = limits.filter(|limit| limit.algorithm() == Algorithm::Concurrency);
        let requested = self.hold.and_then(|hold| hold.requested);
        slots.map(move |limit| requested.map_or(limit.window(), |span| span.min(limit.window())))
    }

    fn requested_span(&self) -> Micros {
        let requested = self.hold.and_then(|hold| hold.requested);
        requested.unwrap_or(DEFAULT_HOLD)
    }

    /// Returns the bands that deny, in the order of evaluation. If the request is
    /// allowed, they belong to shadow rules.
    pub fn violated(&self) -> impl Iterator<Item = Violation<'_>> {
        self.violated.iter().filter_map(|band| self.resolve(*band))
    }

    /// Returns the status over HTTP of a request that a rule forbids.
    pub fn forbidden_status(&self) -> Option<u16> {
        let rule = self.rule().filter(|_| self.outcome == Outcome::Forbidden);
        match rule?.action() {
            RuleAction::Deny { status } => Some(status),
            _ => None,
        }
    }

    /// Returns the rules that were decided, each with whether it denies.
    pub fn rules(&self) -> impl Iterator<Item = (&ActiveRule, bool)> {
        let set = self.set.as_deref();
        self.rules.iter().filter_map(move |decided| {
            let rule = set?.rules().get(decided.rule as usize)?;
            Some((rule, decided.denies))
        })
    }

    /// Returns every band that was decided, with its rule.
    pub fn bands(&self) -> impl Iterator<Item = (&ActiveRule, &Band)> {
        self.rules.iter().flat_map(|decided| self.bands_of(decided))
    }

    /// Returns every band that was enforced, with its rule: those that could have denied the
    /// request. A rule with a rollout is among them only for identities within it.
    pub fn enforced_bands(&self) -> impl Iterator<Item = (&ActiveRule, &Band)> {
        let enforced = self.rules.iter().filter(|decided| !decided.is_shadow);
        enforced.flat_map(|decided| self.bands_of(decided))
    }

    fn bands_of(&self, decided: &DecidedRule) -> impl Iterator<Item = (&ActiveRule, &Band)> {
        let rules = self.set.as_deref().map(RuleSet::rules);
        let rule = rules.and_then(|rules| rules.get(decided.rule as usize));
        let bands = decided.bands.clone();
        bands.filter_map(move |band| Some((rule?, rule?.band(band)?)))
    }

    /// Returns the level of each enforced band, if the request has a hold.
    pub fn levels(&self) -> impl Iterator<Item = BandLevel<'_>> {
        self.levels.iter().filter_map(|(band, remaining, reset)| {
            let Violation { rule, band } = self.resolve(*band)?;
            Some(BandLevel {
                rule,
                band: band?,
                remaining: *remaining,
                reset_after: *reset,
            })
        })
    }

    /// Returns the rule set, if it exists.
    pub fn rule_set(&self) -> Option<&RuleSet> {
        self.set.as_deref()
    }

    /// Returns [`Decision::retry_after`] in microseconds.
    pub fn retry(&self) -> Retry {
        self.retry_after
    }

    /// Returns [`Decision::reset_after`] in microseconds.
    pub fn reset_micros(&self) -> Micros {
        self.reset_after
    }

    /// Returns [`Decision::reset_at`] in microseconds.
    pub fn reset_timestamp(&self) -> Timestamp {
        let micros = self.at.micros().saturating_add(self.reset_after.get());
        Timestamp::saturating_from_micros(micros)
    }

    /// Returns [`Decision::delay`] in microseconds.
    pub fn delay_micros(&self) -> Micros {
        self.delay
    }

    /// Creates the decision to allow a request because the store failed.
    pub fn failed_open() -> Self {
        Self::without_rule(true, Outcome::FailedOpen, Retry::NOW)
    }

    /// Creates the decision to deny a request because the store failed.
    pub fn failed_closed() -> Self {
        Self::without_rule(
            false,
            Outcome::FailedClosed,
            Retry::After(FAILED_CLOSED_RETRY),
        )
    }

    /// Creates the decision to deny a request forever, without a rule.
    pub fn never() -> Self {
        Self::without_rule(false, Outcome::Never, Retry::Never)
    }

    /// Creates the decision to allow a request because no rule matches.
    pub(crate) fn no_rule() -> Self {
        Self::without_rule(true, Outcome::NoRule, Retry::NOW)
    }

    pub(crate) fn without_rule(allowed: bool, outcome: Outcome, retry_after: Retry) -> Self {
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
            reservations: Vec::new(),
            reservation: None,
            rules: SmallVec::new(),
            violated: SmallVec::new(),
            hold: None,
            levels: Vec::new(),
            uses: SmallVec::new(),
            wait: WaitStatus::None,
            is_uncharged: false,
        }
    }

    /// Marks the decision as that of the fallback store. It has no uses: the fallback starts
    /// with full quotas in each instance and is never charged to the store, so its levels are
    /// not the use of the limit, and each instance would report them by itself.
    pub(crate) fn into_fallback(mut self) -> Self {
        self.outcome = Outcome::Fallback;
        self.uses = SmallVec::new();
        self
    }

    /// Sets the rule set that the decision refers to.
    pub(crate) fn set_rule_set(&mut self, set: ActiveRuleSet) {
        self.set = Some(set);
    }

    fn resolve(&self, band: BandRef) -> Option<Violation<'_>> {
        let rule = self.set.as_ref()?.rules().get(band.rule as usize)?;
        let band = match band.band {
            Some(index) => Some(rule.band(index)?),
            None => None,
        };
        Some(Violation { rule, band })
    }
}
