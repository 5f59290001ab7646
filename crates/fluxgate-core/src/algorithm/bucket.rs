//! Token bucket and leaky bucket: one state, seen from both ends.
//!
//! The state is the instant at which the bucket is full (has leaked empty)
//! again. `owed`, the time until then, is the refill time of the C − v missing tokens,
//! and of the level w of the leaky bucket. One unit moves the instant by P/R, and a
//! request passes if `owed + n·P/R ≤ C·P/R`.
//!
//! # The limit holds while rules change
//!
//! Instances change their rules one after the other, so rules with different numbers
//! share one state. Each moves the instant only by what it charges, and a denial moves
//! nothing. Let rule i admit n_i units in an interval of length t, and let
//! F_i = C_i·P_i/R_i be its time to fill. Every admitted unit moves the instant by
//! P_i/R_i, and after the last unit of rule i it is at most F_i past the end of the
//! interval. So, whatever the other rules do:
//!
//! - n_i·P_i/R_i ≤ F_i + t, which is n_i ≤ C_i + R_i·t/P_i: each rule keeps its
//!   own bound, and all of them together at most the sum of the bounds;
//! - Σ n_i·P_i/R_i ≤ max F_i + t: units that one rule uses are gone for the others. If
//!   all F_i are equal, this is Σ n_i / (C_i + R_i·t/P_i) ≤ 1.
//!
//! # The limit holds when reservations are cancelled
//!
//! A reservation gets the instant M at which the bucket would be full after it, and
//! goes on at M − F. A cancelled reservation leaves a gap, but later ones keep their
//! instants, so only units with no reservation behind them return. Let x cancel n
//! units (all as time), let T be the bucket's instant and U the latest one ever
//! assigned (`overhang` is U − T). Then T becomes T − max(0, n − (U − M_x)), and U
//! stays.
//!
//! Let S_i be the units of all valid reservations with M_i or later. The invariant is
//! T ≥ M_i + S_i − F for all i:
//!
//! - A new one gets M = T + n. Others with M_i ≤ M: both sides grow by n. Those
//!   with M_i > M are as before. For itself: S = n + S_j for the next later j, and
//!   S_j ≤ T + F − M_j ≤ F − n, so M + S − F ≤ T + n.
//! - x cancels. Those with M_i ≤ M_x lose n from S_i, and T loses at most n. For
//!   those with M_i > M_x, before: S_i + n ≤ S_x ≤ T + F − M_x. So M_i + S_i − F ≤
//!   T − n + (M_i − M_x) ≤ T − n + (U − M_x).
//!
//! Now let an interval begin at a. The requests that wait at a have M ≥ a + F, so by
//! the invariant they are at most T − a together, and those among them that cancel
//! later return no more than that. The last request that is charged in the interval
//! and goes on before its end b has at most M = b + F, so between a and it T has moved
//! by at most b + F − T, returns included. Together that is at most F + (b − a), which
//! are C + R·t/P units.
//!
//! A shaping queue spaces its requests out: each goes on at M − n, so no two may have
//! the same instant, and only the last one returns its units.
//!
//! Another bucket of the same request, which did not delay it, may have refilled since.
//! Refilled units are not returned again: the time since M_x − n stays charged.
//!
//! # The limit holds when holds are settled beside reservations
//!
//! A hold x of n units that is settled with d less returns d, also units that have
//! refilled since: it has used less than it was charged. But while a reservation waits,
//! it returns only max(0, d − (U − M_x)), whether x itself still waits or has gone on.
//!
//! A reservation waits if U > now + F and some request had to wait since the bucket was last
//! full. In that case the one that got U goes on at U − F, later than now; otherwise all that
//! are valid have gone on. The state says whether any request had to wait (an overhang other
//! than none), and not the rule of the hold: rules with and without `max_wait` may share the
//! state while they change. Without such a request U > now + F is the excess of a higher
//! settlement, or a clock that went back. Under a rule with `max_wait`, U > now + F alone counts
//! as a waiting reservation. U may belong to a reservation that has been cancelled, or to an
//! excess. In these cases too little returns, and never too much.
//!
//! U need not cover requests that did not have to wait: they got M ≤ now + F, so U is later than
//! theirs whenever a reservation waits. So a return under a rule without `max_wait`, to a bucket
//! for which no request had to wait, leaves the overhang as it is.
//!
//! The invariant is that of cancellations, for all charges that are valid, gone on or not,
//! with S_i at their real cost, and Q more on its right side: T ≥ M_i + S_i − F − Q.
//!
//! - x returns k = d − (U − M_x) > 0 beside a reservation. Those with M_i ≤ M_x lose d
//!   from S_i, and T loses at most d. For those with M_i > M_x, before: S_i + n ≤ S_x ≤
//!   T + F + Q − M_x. So M_i + S_i − F − Q ≤ T − n + (M_i − M_x) ≤ T − k.
//! - x returns d while no reservation waits. Q grows by d, and T loses at most d.
//!
//! So Q is what was returned while no reservation waited, as if an operator had refunded it.
//! What an operator refunds counts towards Q, too, and once that has filled the bucket, U is
//! unknown: then so does what earlier holds return.
//!
//! Let an interval begin at a and end at b, let W wait at a, and let G be charged before a,
//! go on before a, and return units beside a reservation before b. As above, what goes on in
//! the interval is at most b + F − T + S(W) + returned(G), plus what returns while no
//! request waits. If G is empty, T ≥ a + S(W) − Q by the invariant. Otherwise let g be the first
//! of G: T ≥ M_g + S(W) + S(G) − F − Q. When g returns at r ≥ a, a reservation waits, so
//! U − M_g > r + F − M_g ≥ a + F − M_g, and at least U − M_g of its n units do not return:
//! S(G) − returned(G) ≥ a + F − M_g. In both cases what goes on is at most F + (b − a) + Q:
//! C + R·t/P units, and those that were returned while no reservation waited.
//!
//! A shaping queue returns the units of its last request only.

use super::verdict::{Mode, Verdict};
use crate::limit::{FracMicros, Horizon, Limit, Rate};
use crate::time::{Micros, Retry, Timestamp};

/// The state of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The instant at which it is full.
    pub full_at: FracMicros,
    /// R: the denominator of `full_at.part`.
    pub refill: u32,
    /// The furthest that `full_at` may lie ahead of the clock, by the rule that charged
    /// last.
    pub horizon: Horizon,
    /// How far the latest instant that any reservation got lies past `full_at`.
    pub overhang: Overhang,
}

impl Bucket {
    /// Assesses a request on a limit that is a bucket. Returns the verdict, the state
    /// to write even if nothing is charged, and the state to write if it is.
    #[inline(always)]
    pub(crate) fn assess(
        limit: &Limit,
        stored: Option<Self>,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> (Verdict, Option<Self>, Option<Self>) {
        let rate = limit.rate();
        let (owed, shortened) = settle(rate, stored, now);
        let corrected = stored
            .filter(|_| shortened)
            .map(|stored| stored.moved_to(rate, owed, now));
        if cost > limit.capacity() {
            let verdict = bucket_verdict(limit, now, Retry::Never, None, owed);
            return (verdict, corrected, None);
        }
        let time = rate.time_of(cost);
        let after = rate.add(owed, time);
        let (wait, delay) = delay_of(rate, owed, after, mode);
        let taken = delay.is_some() && cost > 0;
        let reported = if taken && mode.reports_charge() {
            after
        } else {
            owed
        };
        let verdict = bucket_verdict(limit, now, Retry::After(wait), delay, reported);
        let charged = taken.then(|| {
            let before = stored.map_or(Overhang::NONE, |stored| stored.overhang_at(now));
            let overhang = before.after(time);
            Self {
                full_at: instant(now, after),
                // At most MAX_UNITS.
                refill: rate.refill() as u32,
                horizon: rate.horizon(),
                overhang: if delay == Some(Micros::ZERO) {
                    overhang
                } else {
                    overhang.reserved()
                },
            }
        });
        (verdict, corrected, charged)
    }

    /// Takes `cost` units of a bucket that is full at `full_at`, if the limit lets nothing
    /// wait and the fraction is in its R-ths. Returns the verdict of [`Bucket::assess`] and the
    /// new instant, except that it returns `None` if that has a correction to make.
    ///
    /// There is nothing but a sum and a comparison in the usual case, which is what a limiter
    /// without keys has to be fast in.
    #[inline(always)]
    pub(crate) fn take_plain(
        limit: &Limit,
        full_at: FracMicros,
        now: Timestamp,
        cost: u64,
    ) -> Option<PlainCharge> {
        let rate = limit.rate();
        // A capacity is at least one, and a cost of nothing changes nothing.
        if cost != 1 && (cost == 0 || cost > limit.capacity()) {
            return None;
        }
        let owed = owed_at(full_at, now);
        let after = rate.add(owed, rate.time_of(cost));
        let Some(wait) = wait_of(rate, after) else {
            return Some(PlainCharge {
                full_at: Some(instant(now, after)),
                owed: after,
                wait: Micros::ZERO,
                remaining: remaining(limit, after),
            });
        };
        // The horizon is beyond the time to fill, so only a denial can be beyond it.
        (owed.whole < rate.horizon().micros()).then_some(PlainCharge {
            full_at: None,
            owed,
            wait,
            // What denies one unit has no whole unit left. This saves a division.
            remaining: if cost == 1 { 0 } else { remaining(limit, owed) },
        })
    }

    /// Returns the same bucket, `owed` away from full.
    fn moved_to(self, rate: &Rate, owed: FracMicros, now: Timestamp) -> Self {
        Self {
            full_at: instant(now, owed),
            // At most MAX_UNITS.
            refill: rate.refill() as u32,
            ..self
        }
    }

    /// Returns the same bucket, `back` nearer to full than `owed`.
    fn moved_back(self, rate: &Rate, owed: FracMicros, back: FracMicros, now: Timestamp) -> Self {
        let bucket = self.moved_to(rate, rate.saturating_sub(owed, back), now);
        let mut overhang = self.overhang_at(now);
        // Without reservations there is no instant to remember. In a shaping queue only the last
        // one returns its units, and then the one before it is the last.
        if rate.max_wait().is_some() || !rate.shape() && overhang != Overhang::NONE {
            overhang = overhang.before(back);
        }
        Self { overhang, ..bucket }
    }

    /// Returns how far the latest instant that any reservation got lies past `full_at`, or
    /// past `now` if the bucket has been full since.
    #[inline(always)]
    pub fn overhang_at(&self, now: Timestamp) -> Overhang {
        if self.overhang == Overhang::NONE {
            return self.overhang;
        }
        let idle = now.micros().saturating_sub(self.full_at.ceil());
        self.overhang.after_idle(idle)
    }
}

/// The result of [`Bucket::take_plain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainCharge {
    /// The new instant at which the bucket is full, if the request passes.
    pub(crate) full_at: Option<FracMicros>,
    /// The time until the bucket is full.
    owed: FracMicros,
    /// The time until the request would pass.
    wait: Micros,
    /// Whole units left.
    remaining: u32,
}

impl PlainCharge {
    /// Returns the verdict of the limit at the time of the decision.
    #[inline(always)]
    pub(crate) fn verdict(&self, now: Timestamp) -> Verdict {
        let reset_after = Micros::new(self.owed.ceil());
        Verdict {
            part: self.owed.part,
            ..Verdict::new(
                now,
                Retry::After(self.wait),
                self.remaining.into(),
                reset_after,
            )
        }
    }
}

/// Returns C − ceil(owed·R/P), not below 0.
#[inline(always)]
fn remaining(limit: &Limit, owed: FracMicros) -> u32 {
    // At most a capacity.
    limit.capacity().saturating_sub(limit.rate().units_in(owed)) as u32
}

/// Returns the time until the bucket is full, and whether it had to be shortened
/// because it was beyond the horizon: the clock went back.
#[inline(always)]
pub(super) fn settle(rate: &Rate, stored: Option<Bucket>, now: Timestamp) -> (FracMicros, bool) {
    let Some(Bucket {
        full_at,
        refill,
        horizon,
        ..
    }) = stored
    else {
        return (FracMicros::default(), false);
    };
    let owed = owed_at(full_at, now);
    let horizon = FracMicros {
        whole: horizon.micros(),
        part: 0,
    };
    if owed > horizon {
        return (horizon, true);
    }
    (in_parts_of(rate, owed, refill), false)
}

/// Returns the time from `now` to an instant; zero if it has passed.
#[inline(always)]
fn owed_at(full_at: FracMicros, now: Timestamp) -> FracMicros {
    // The clock shows whole microseconds, so nothing is borrowed.
    match full_at.whole.checked_sub(now.micros()) {
        Some(whole) => FracMicros { whole, ..full_at },
        None => FracMicros::default(),
    }
}

/// Converts the fraction of a span to R-ths of the current R; one that does not fit
/// rounds up to the next microsecond.
#[inline(always)]
fn in_parts_of(rate: &Rate, span: FracMicros, refill: u32) -> FracMicros {
    if u64::from(refill) == rate.refill() || span.part == 0 {
        return span;
    }
    in_other_parts(rate, span, refill)
}

#[cold]
fn in_other_parts(rate: &Rate, span: FracMicros, refill: u32) -> FracMicros {
    let scaled = u64::from(span.part) * rate.refill();
    if scaled.is_multiple_of(u64::from(refill)) {
        FracMicros {
            whole: span.whole,
            // A fraction below one, in R-ths: below R.
            part: (scaled / u64::from(refill)) as u32,
        }
    } else {
        FracMicros {
            whole: span.whole + 1,
            part: 0,
        }
    }
}

/// Returns the time until a request would pass without waiting, and its delay if it
/// passes. It would leave the bucket `after` away from full.
#[inline(always)]
fn delay_of(
    rate: &Rate,
    owed: FracMicros,
    after: FracMicros,
    mode: Mode,
) -> (Micros, Option<Micros>) {
    let waits = mode.waits();
    let Some(wait) = wait_of(rate, after) else {
        let queue = if rate.shape() {
            Micros::new(owed.ceil())
        } else {
            Micros::ZERO
        };
        return if waits || queue == Micros::ZERO {
            (Micros::ZERO, Some(queue))
        } else {
            (queue, None)
        };
    };
    let may_wait = waits && rate.max_wait().is_some_and(|most| wait <= most);
    (wait, may_wait.then_some(wait))
}

/// Returns the time until a request would pass that would leave the bucket `after` away
/// from full; `None` if it passes.
#[inline(always)]
fn wait_of(rate: &Rate, after: FracMicros) -> Option<Micros> {
    let fill = rate.fill();
    // The first comparison decides nearly always.
    if after.whole < fill.whole || after <= fill {
        return None;
    }
    Some(Micros::new(rate.saturating_sub(after, fill).ceil()))
}

/// Refunds units: v = min(C, v + n). Returns `None` if the bucket is full again.
pub(super) fn refund(rate: &Rate, stored: Bucket, now: Timestamp, units: u64) -> Option<Bucket> {
    let (owed, _) = settle(rate, Some(stored), now);
    if units >= rate.units_in(owed) {
        return None;
    }
    Some(stored.moved_back(rate, owed, rate.time_of(units), now))
}

/// Returns units of a hold whose charge moved the bucket to `mark`, as far as later
/// reservations let them return. A bucket that this fills is full from now on, and not
/// before.
pub(super) fn return_units(
    rate: &Rate,
    stored: Bucket,
    now: Timestamp,
    units: u64,
    mark: FracMicros,
) -> Bucket {
    let (owed, _) = settle(rate, Some(stored), now);
    let latest = latest(stored, now, owed);
    let time = rate.time_of(units);
    // The rule of the hold may let nothing wait, and another one with the same state may.
    let may_wait = rate.max_wait().is_some() || stored.overhang_at(now) != Overhang::NONE;
    let back = if rate.shape() && latest != mark {
        FracMicros::default()
    } else if may_wait && latest > instant(now, rate.fill()) {
        rate.saturating_sub(time, rate.saturating_sub(latest, mark))
    } else {
        time
    };
    stored.moved_back(rate, owed, back.min(owed), now)
}

/// Returns the latest instant that any charge has moved the bucket to.
fn latest(stored: Bucket, now: Timestamp, owed: FracMicros) -> FracMicros {
    FracMicros {
        whole: now.micros() + owed.whole + stored.overhang_at(now).micros(),
        part: owed.part,
    }
}

/// Charges units to a bucket that is `owed` away from full, whether or not it has them.
/// Returns `None` if it is full and stays so.
pub(super) fn charge(
    rate: &Rate,
    stored: Option<Bucket>,
    now: Timestamp,
    owed: FracMicros,
    units: u64,
) -> Option<Bucket> {
    let time = rate.time_of(units);
    let after = rate.add(owed, time);
    // Only a charge keeps the instant within the horizon of this rule. Without one, the instant may
    // be that of another rule and lie far beyond it, and would be pulled back.
    let horizon = match stored {
        Some(stored) if units == 0 => stored.horizon,
        _ => rate.horizon(),
    };
    (after != FracMicros::default()).then(|| Bucket {
        full_at: instant(now, after),
        // At most MAX_UNITS.
        refill: rate.refill() as u32,
        horizon,
        overhang: stored.map_or(Overhang::NONE, |stored| stored.overhang_at(now).after(time)),
    })
}

/// Cancels a reservation of `units` that got the instant `mark`, as far as units may
/// return. Returns `None` if the bucket is full again.
pub(super) fn cancel(
    rate: &Rate,
    stored: Bucket,
    now: Timestamp,
    units: u64,
    mark: FracMicros,
) -> Option<Bucket> {
    let (owed, _) = settle(rate, Some(stored), now);
    if owed == FracMicros::default() {
        return Some(stored);
    }
    let cost = rate.time_of(units);
    let latest = latest(stored, now, owed);
    if rate.shape() && latest != mark {
        return Some(stored);
    }
    let behind = rate.saturating_sub(latest, mark);
    let clock = FracMicros {
        whole: now.micros(),
        part: 0,
    };
    let refilled = rate.saturating_sub(rate.add(clock, cost), mark);
    let back = rate.saturating_sub(cost, behind.max(refilled));
    if back == FracMicros::default() {
        return Some(stored);
    }
    if owed <= back {
        return None;
    }
    Some(stored.moved_back(rate, owed, back, now))
}

fn instant(now: Timestamp, owed: FracMicros) -> FracMicros {
    FracMicros {
        whole: now.micros() + owed.whole,
        part: owed.part,
    }
}

#[inline(always)]
fn bucket_verdict(
    limit: &Limit,
    now: Timestamp,
    wait: Retry,
    delay: Option<Micros>,
    owed: FracMicros,
) -> Verdict {
    let wait = if delay.is_some() { Retry::NOW } else { wait };
    let remaining = remaining(limit, owed).into();
    Verdict {
        part: owed.part,
        delay: delay.unwrap_or_default(),
        ..Verdict::new(now, wait, remaining, Micros::new(owed.ceil()))
    }
}

/// A span of whole microseconds in 29 bits: exact below 2^24 µs (16 s), rounded up
/// above. Rounding up returns fewer units, never more.
///
/// It also says whether there is any reservation at all. One that lies at `full_at` itself is a
/// span of zero that differs from [`Overhang::NONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhang(u32);

impl Overhang {
    /// No request had to wait since the bucket was last full.
    pub const NONE: Self = Self(0);
    /// A request has to wait, or had to, and none lies past `full_at`. Zero halved once.
    const AT_FULL: Self = Self(1 << Self::MANTISSA_BITS);
    /// The number of bits.
    pub const BITS: u32 = 29;

    const MANTISSA_BITS: u32 = 24;

    /// Creates a span, rounded up.
    pub const fn new(micros: u64) -> Self {
        let mut mantissa = micros;
        let mut exponent = 0;
        while mantissa >> Self::MANTISSA_BITS > 0 {
            mantissa = mantissa.div_ceil(2);
            exponent += 1;
        }
        Self(exponent << Self::MANTISSA_BITS | mantissa as u32)
    }

    /// Returns the span with these bits, unless no span has them.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits >> Self::BITS == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Reads a span from the lowest 29 bits.
    pub(crate) const fn from_low_bits(bits: u64) -> Self {
        Self(bits as u32 & ((1 << Self::BITS) - 1))
    }

    /// Returns the exponent and the mantissa.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns the span in microseconds.
    pub const fn micros(self) -> u64 {
        let mantissa = self.0 & ((1 << Self::MANTISSA_BITS) - 1);
        (mantissa as u64) << (self.0 >> Self::MANTISSA_BITS)
    }

    /// Returns what is left when the bucket's instant moves on by `cost`.
    #[inline]
    fn after(self, cost: FracMicros) -> Self {
        if self == Self::NONE {
            return self;
        }
        match self.micros().saturating_sub(cost.whole) {
            0 => Self::AT_FULL,
            left => Self::new(left),
        }
    }

    /// Returns the overhang when the bucket's instant moves back by `span`.
    fn before(self, span: FracMicros) -> Self {
        match self.micros() + span.ceil() {
            0 => self,
            sum => Self::new(sum),
        }
    }

    /// Returns what is left after the bucket was full for so many microseconds.
    #[inline]
    fn after_idle(self, micros: u64) -> Self {
        if self == Self::NONE || micros == 0 {
            return self;
        }
        Self::new(self.micros().saturating_sub(micros))
    }

    /// Returns the overhang when a request that has to wait moves the bucket's instant.
    #[inline]
    fn reserved(self) -> Self {
        if self == Self::NONE {
            Self::AT_FULL
        } else {
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Algorithm;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        /// The short way decides, charges and reports like the long one.
        #[test]
        fn a_plain_charge_is_that_of_the_general_assessment(
            capacity in 1_u64..50,
            refill in 1_u64..50,
            millis in 1_u64..100,
            ahead in -20_000_000_i64..20_000_000,
            part in 0_u32..50,
            cost in 0_u64..60,
        ) {
            let limit = Limit::builder(Algorithm::TokenBucket, capacity, Duration::from_secs(1))
                .refill(refill)
                .period(Duration::from_millis(millis))
                .build()
                .unwrap();
            let now = Timestamp::from_micros(1_700_000_000_000_000).unwrap();
            let full_at = FracMicros {
                whole: now.micros().checked_add_signed(ahead).unwrap(),
                part: part % refill as u32,
            };
            let stored = Bucket {
                full_at,
                refill: refill as u32,
                horizon: limit.rate().horizon(),
                overhang: Overhang::NONE,
            };
            let (verdict, corrected, charged) =
                Bucket::assess(&limit, Some(stored), now, cost, Mode::Take);
            match Bucket::take_plain(&limit, full_at, now, cost) {
                Some(plain) => {
                    prop_assert!(corrected.is_none());
                    prop_assert_eq!(plain.verdict(now), verdict);
                    let moved = plain.full_at.map(|full_at| Bucket { full_at, ..stored });
                    prop_assert_eq!(charged, moved);
                }
                None => {
                    let horizon = limit.rate().horizon().micros();
                    let is_beyond = full_at.whole >= now.micros() + horizon;
                    prop_assert!(cost == 0 || cost > capacity || is_beyond);
                }
            }
        }
    }

    #[test]
    fn an_overhang_is_exact_below_16_seconds_and_never_less_than_it_was() {
        for micros in (0..50).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]) {
            let overhang = Overhang::new(micros);
            assert_eq!(Overhang::from_bits(overhang.bits()), Some(overhang));
            let kept = overhang.micros();
            assert!(kept >= micros && kept - micros <= micros >> 23, "{micros}");
            assert!(kept == micros || micros >= 1 << 24, "{micros}");
        }
        assert_eq!(Overhang::from_bits(1 << Overhang::BITS), None);
    }

    #[test]
    fn an_overhang_of_nothing_tells_of_reservations_until_the_bucket_is_full() {
        let micros = |whole| FracMicros { whole, part: 0 };
        let reserved = Overhang::NONE.reserved();
        assert_eq!((reserved.micros(), reserved == Overhang::NONE), (0, false));
        assert_eq!(Overhang::from_bits(reserved.bits()), Some(reserved));
        assert_eq!(reserved.after(micros(5)), reserved);
        assert_eq!(reserved.before(micros(5)).after(micros(9)), reserved);
        assert_eq!(reserved.after_idle(0), reserved);
        assert_eq!(reserved.after_idle(1), Overhang::NONE);
        assert_eq!(Overhang::NONE.after(micros(5)), Overhang::NONE);
    }
}
