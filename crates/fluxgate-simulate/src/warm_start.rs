//! The counters as they stood when a recording began.
//!
//! Recorded requests are in the past, and the state of a store is of now. A replay that started from
//! empty counters would admit what was denied: of an hourly limit that was used up before the
//! recording began, all of it. One that started from the state of now would count what was recorded
//! twice. So the state of now is taken back: the units that were recorded since are subtracted from
//! it, which gives what was used at the start. The rules that are tried start from these counters, as
//! if they had been applied at the start of the recording; a change of limits carries state over as it
//! does in a store.
//!
//! Not all of the past can be read off the present: a bucket that was full in between, or a window
//! that has ended, says nothing about what was before. There the recorded decisions do. At a denial
//! the counter was full, and at an admission it had room, whatever it held at the start. Each of
//! these is a bound of the units at the start:
//!
//! - at a level `l` at the time `t`, with `c` units charged since the start, a bucket had at least
//!   `l − c + refill(start, t)` at the start, unless `c` alone explains the level;
//! - a window that contains both times had `l − c`;
//! - of a sliding window or log, the part `(W − (t − start)) / W` of the units at the start still
//!   counts at `t`, if they were spread evenly. Of a log, denials also tell when they were used, and of a
//!   sliding window, whether in the aligned window of the start.
//!
//! The highest lower bound that no upper bound contradicts is taken. Bounds contradict each other
//! where units were used that were not recorded. What cannot be known (when slots were released, what
//! holds cost in the end, and what clients whose requests were not recorded used) is an error of the
//! trial. So a replay of the unchanged rules stands beside it: it shows how many of the recorded
//! decisions the trial gets right.

use std::collections::HashMap;

use fluxgate_core::store::Micros;
use fluxgate_core::{
    Algorithm, Band, BandState, BandTarget, CountingRule, Limit, Limiter, Outcome, RequestContext,
    RuleSets, Timestamp,
};

use crate::replay::{VirtualLimiter, virtual_store};

/// In how many steps units of a sliding window or log are spread over the window before the start.
const STEPS: u64 = 60;

/// A recorded request, and what was decided.
#[derive(Clone, Debug)]
pub struct RecordedDecision<'a> {
    /// When it was decided.
    pub at: Timestamp,
    /// The rule set that decided.
    pub rule_set: &'a str,
    /// The request.
    pub context: RequestContext<'a>,
    /// What was decided.
    pub outcome: Outcome,
    /// The rule that was reported.
    pub rule: Option<&'a str>,
}

/// A rule set, a rule and an encoded identity.
type CounterKey = (Box<str>, Box<str>, Box<[u8]>);

/// What is known of the counters of one identity of a rule.
#[derive(Clone, Debug)]
pub struct CounterTrace {
    rule_set: Box<str>,
    rule: Box<str>,
    identity: Box<[u8]>,
    bands: Vec<Band>,
    uses: Vec<Use>,
    /// Whether a denial shows that a band was full, and an admission that it had room.
    is_strict: bool,
}

/// Units that were charged to a counter, or that it refused.
#[derive(Clone, Copy, Debug)]
struct Use {
    at: Timestamp,
    units: u64,
    is_charged: bool,
    /// Whether the rules that decided are those of the trace.
    is_evidence: bool,
}

/// Units that a counter holds when a replay starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartCharge {
    rule_set: Box<str>,
    rule: Box<str>,
    identity: Box<[u8]>,
    band: Box<str>,
    at: Timestamp,
    units: u64,
}

impl CounterTrace {
    /// Returns what a recording says about each counter of `rules`, the busiest counter first.
    /// Decisions before `rules_since` were made by other rules.
    pub fn all(
        rules: &RuleSets,
        decisions: &[RecordedDecision<'_>],
        rules_since: Timestamp,
    ) -> Vec<Self> {
        let limiter: VirtualLimiter = Limiter::new(rules.clone(), virtual_store());
        let mut places: HashMap<CounterKey, usize> = HashMap::new();
        let mut traces: Vec<Self> = Vec::new();
        for decision in decisions {
            let (rule_set, at) = (decision.rule_set, decision.at);
            let mut shadows = 0;
            limiter.counted_at(rule_set, &decision.context, at, |it| {
                shadows += u32::from(it.is_shadow);
            });
            limiter.counted_at(rule_set, &decision.context, at, |counting| {
                if counting.rule.takes_slots() {
                    return;
                }
                let Some(is_charged) = was_charged(decision, &counting, shadows == 1) else {
                    return;
                };
                let id = counting.rule.id();
                let key = (rule_set.into(), id.into(), counting.identity.into());
                let place = *places.entry(key).or_insert_with(|| {
                    traces.push(Self::new(rule_set, &counting));
                    traces.len() - 1
                });
                traces[place].uses.push(Use {
                    at,
                    units: counting.units,
                    is_charged,
                    is_evidence: at >= rules_since,
                });
            });
        }
        traces.sort_by_key(|trace| u64::MAX - trace.uses.len() as u64);
        traces
    }

    fn new(rule_set: &str, counting: &CountingRule<'_>) -> Self {
        let rule = counting.rule;
        Self {
            rule_set: rule_set.into(),
            rule: rule.id().into(),
            identity: counting.identity.into(),
            bands: counting.bands.to_vec(),
            uses: Vec::new(),
            is_strict: !rule.waits() && !rule.charges_always(),
        }
    }

    /// Returns the name of the rule set.
    pub fn rule_set(&self) -> &str {
        &self.rule_set
    }

    /// Returns the id of the rule.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the encoded identity.
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// Returns the units that the counters held when the recording began, at `start`. `states` are
    /// the bands of the identity as they are `now`, if they are known.
    pub fn start_charges(
        &self,
        start: Timestamp,
        states: Option<&[BandState]>,
        now: Timestamp,
    ) -> Vec<StartCharge> {
        let mut charges = Vec::new();
        for band in &self.bands {
            let mut known = states.unwrap_or_default().iter();
            let state = known.find(|state| state.band.tag() == band.tag());
            let state = state.map(|state| (level_of(state), now));
            let held = self.held_at(start, band.limit(), state);
            self.push_charges(&mut charges, band, start, held);
        }
        charges
    }

    /// Returns what a band held at `start`. `end` is its level at a later time.
    fn held_at(&self, start: Timestamp, limit: &Limit, end: Option<(i128, Timestamp)>) -> Held {
        let drain = Drain::of(limit, start);
        let scale = scale_of(limit);
        let capacity = i128::from(limit.capacity()) * scale;
        // A denial does not say which band was full. Where the state says nothing either, only a
        // single band can be blamed.
        let is_blamed = self.is_strict && (self.bands.len() == 1 || end.is_some());
        let (mut least, mut most) = (Vec::new(), capacity);
        let mut charged = 0;
        // What a log held at the time of denials at least.
        let mut needs = Vec::new();
        // What the aligned window of the start held at least, if none of it is of the one before.
        let (aligned, mut unspread) = (limit.window_at(start), 0);
        // The level that the recorded charges alone explain.
        let mut explained = Level::default();
        for it in &self.uses {
            let (passed, units) = (since(start, it.at), i128::from(it.units) * scale);
            explained.drain_to(passed, &drain);
            let full = capacity - units;
            if it.is_charged {
                if self.is_strict && it.is_evidence {
                    most = most.min(drain.start_of(full, charged, passed, it.at).unwrap_or(most));
                }
                charged += units;
                explained.level += units;
            } else if is_blamed && it.is_evidence && limit.algorithm() == Algorithm::SlidingLog {
                needs.push((passed, full + 1 - charged));
            } else if is_blamed && it.is_evidence && explained.level <= full {
                least.extend(drain.start_of(full + 1, charged, passed, it.at));
                if aligned.contains(it.at.micros()) {
                    unspread = unspread.max(full + 1 - charged);
                }
            }
        }
        if let Some((level, at)) = end {
            let passed = since(start, at);
            explained.drain_to(passed, &drain);
            if let Some(first) = drain.start_of(level, charged, passed, at) {
                most = most.min(first);
                if explained.level < level {
                    least.push(first);
                }
            }
        }
        let is_sliding = limit.algorithm() == Algorithm::SlidingWindow;
        if is_sliding && unspread > 0 && least.iter().any(|level| *level > capacity) {
            // Even a full counter would have had room by then, if its units were spread.
            needs.push((i128::from(limit.window().get()) - 1, unspread));
            return Held::new(0, capacity, &needs, limit);
        }
        // Clocks differ by a little, so bounds may contradict each other by as much as a unit.
        let possible = least.into_iter().filter(|level| *level <= most + scale);
        let level = possible.max().unwrap_or(0).min(most).clamp(0, capacity);
        Held::new(level, capacity, &needs, limit)
    }

    fn push_charges(
        &self,
        charges: &mut Vec<StartCharge>,
        band: &Band,
        start: Timestamp,
        held: Held,
    ) {
        let Held { level, dated } = held;
        let limit = band.limit();
        let scale = scale_of(limit);
        // A part of a unit is a unit that was charged a moment before.
        let units = u64::try_from(level.div_euclid(scale) + i128::from(level % scale > 0));
        let units = units.unwrap_or(0);
        let start = start.micros();
        let mut push = |at: u64, units: u64| {
            if let Some(at) = Timestamp::from_micros(at).filter(|_| units > 0) {
                charges.push(StartCharge {
                    rule_set: self.rule_set.clone(),
                    rule: self.rule.clone(),
                    identity: self.identity.clone(),
                    band: band.id().into(),
                    at,
                    units,
                });
            }
        };
        match limit.algorithm() {
            Algorithm::FixedWindow | Algorithm::Concurrency => push(start, units),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let more = i128::from(units) * scale - level;
                let ago = more / i128::from(limit.rate().refill());
                push(start.saturating_sub(u64::try_from(ago).unwrap_or(0)), units);
            }
            Algorithm::SlidingLog | Algorithm::SlidingWindow => {
                let steps = units.clamp(1, STEPS);
                let first = start.saturating_sub(limit.window().get());
                let spread = (1..=steps).map(|step| {
                    let at = first + (start - first) / steps * step;
                    (at, units * step / steps - units * (step - 1) / steps)
                });
                let dated = dated.iter().map(|(after, units)| (first + after, *units));
                let mut all: Vec<_> = spread.chain(dated).collect();
                all.sort_unstable();
                all.into_iter().for_each(|(at, units)| push(at, units));
            }
        }
    }
}

impl StartCharge {
    /// Charges the units.
    pub(crate) fn apply(&self, limiter: &VirtualLimiter) {
        let target = BandTarget {
            rule_set: &self.rule_set,
            rule: &self.rule,
            identity: &self.identity,
            band: &self.band,
        };
        // They are at most the capacity of an empty counter, so they fit.
        limiter.charge_at(target, self.units, self.at);
    }
}

/// Returns whether a recorded request was charged to a counter. `None` if it was neither charged nor
/// shows that the counter was full.
fn was_charged(
    decision: &RecordedDecision<'_>,
    counting: &CountingRule<'_>,
    is_only_shadow: bool,
) -> Option<bool> {
    let is_store_outcome = !matches!(
        decision.outcome,
        Outcome::FailedOpen | Outcome::FailedClosed | Outcome::Fallback
    );
    if counting.units == 0 || !is_store_outcome {
        return None;
    }
    let is_shadow = counting.is_shadow;
    match decision.outcome {
        _ if counting.rule.charges_always() => Some(true),
        Outcome::Allowed => Some(true),
        Outcome::ShadowDenied if !is_shadow => Some(true),
        Outcome::ShadowDenied => is_only_shadow.then_some(false),
        Outcome::Denied if !is_shadow && decision.rule == Some(counting.rule.id()) => Some(false),
        _ => None,
    }
}

/// Returns how many parts a unit of a level has: those that refill in a microsecond are whole.
fn scale_of(limit: &Limit) -> i128 {
    if limit.algorithm().is_bucket() {
        limit.rate().period().get().into()
    } else {
        1
    }
}

/// Returns the level of a band.
fn level_of(state: &BandState) -> i128 {
    let limit = state.band.limit();
    if limit.algorithm().is_bucket() {
        // A bucket may owe, which `remaining` does not show.
        let reset = Micros::from_duration(state.reset_after).get();
        return i128::from(reset) * i128::from(limit.rate().refill());
    }
    let left = state.remaining.saturating_add(state.on_lease);
    i128::from(limit.capacity().saturating_sub(left))
}

/// Returns how long after `start` it is, in microseconds.
fn since(start: Timestamp, at: Timestamp) -> i128 {
    i128::from(at.micros().saturating_sub(start.micros()))
}

/// What a band held at the start.
#[derive(Clone, Debug)]
struct Held {
    /// Units times [`scale_of`] the limit. In a window that slides, they are spread over it.
    level: i128,
    /// Units whose times are known, in microseconds after the first instant of the window that ends at
    /// the start.
    dated: Vec<(u64, u64)>,
}

impl Held {
    /// Creates it from the level that is spread, and from what a log held at least at some times after
    /// the start. What was still held at a denial left the window after it: so the denials tell when
    /// units were used.
    fn new(level: i128, capacity: i128, needs: &[(i128, i128)], limit: &Limit) -> Self {
        let window = i128::from(limit.window().get());
        let (mut dated, mut sum) = (Vec::new(), 0);
        let within = needs.iter().rev().filter(|(passed, _)| *passed < window);
        for (passed, need) in within {
            let spread = level * (window - passed) / window;
            let more = (need - spread - sum).min(capacity - sum);
            if more > 0 {
                sum += more;
                // Both are positive, and at most a window and a capacity.
                dated.push(((passed + 1) as u64, more as u64));
            }
        }
        Self {
            level: level.min(capacity - sum),
            dated,
        }
    }
}

/// How units at the start cease to count.
enum Drain {
    /// A bucket refills by as much in a microsecond.
    Refill { refill: i128 },
    /// A window that ends.
    End { from: u64, to: u64 },
    /// A window that slides.
    Slide { window: i128 },
}

impl Drain {
    fn of(limit: &Limit, start: Timestamp) -> Self {
        match limit.algorithm() {
            Algorithm::FixedWindow | Algorithm::Concurrency => {
                let window = limit.window_at(start);
                Self::End {
                    from: window.start,
                    to: window.end,
                }
            }
            Algorithm::SlidingLog | Algorithm::SlidingWindow => Self::Slide {
                window: limit.window().get().into(),
            },
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Self::Refill {
                refill: limit.rate().refill().into(),
            },
        }
    }

    /// Returns the level at the start with which it is `level` at `at`, if `charged` was charged in
    /// between. `None` if the level then says nothing about the start.
    fn start_of(&self, level: i128, charged: i128, passed: i128, at: Timestamp) -> Option<i128> {
        match self {
            Self::Refill { refill } => Some(level - charged + passed * refill),
            Self::End { from, to } => {
                let contains = (*from..*to).contains(&at.micros());
                contains.then_some(level - charged)
            }
            Self::Slide { window } => {
                let rest = window - passed;
                (rest > 0).then(|| (level - charged) * window / rest)
            }
        }
    }
}

/// A level that drains.
#[derive(Default)]
struct Level {
    level: i128,
    passed: i128,
}

impl Level {
    fn drain_to(&mut self, passed: i128, drain: &Drain) {
        if let Drain::Refill { refill } = drain {
            let drained = (passed - self.passed).max(0) * refill;
            self.level = (self.level - drained).max(0);
        }
        self.passed = passed;
    }
}
