//! Leases: units of a shared limit that an instance holds and spends by itself.
//!
//! Beside the state of a band, a store keeps the units that are out on lease. A grant charges
//! units to the band as a request does, and adds them to those that are out. The holder spends
//! them without a call, and reports in its next lease request what it has spent and what it
//! returns. At most L units are out: the share of the limit that the rule leases. A bucket
//! counts by the limit that is left, C − L, and a fixed window by all of C.
//!
//! # The limit holds
//!
//! The holder counts the life of a grant by its own clock, from before it sent the request. That
//! clock never goes back and does not stop while the machine sleeps. The holder stops early
//! ([`Grant::usable_for`]); the store counts from when it granted, and rounds up. So all units
//! that a holder can still spend are out, and units that are out were charged, are spent at most
//! once, and return at most once.
//!
//! Let an interval begin at a and have the length t. Of the units that are out at a, let s be
//! spent in the interval and r return, so s + r ≤ L. All other units that are admitted in the
//! interval are charged in it. Units that return refill the bucket as time does, and never above
//! full, so what is charged in the interval, less what returns in it, is at most
//! (C − L) + R·t/P. Units that are both granted and returned in the interval count on both sides
//! of that difference and are not admitted. So what is admitted is at most
//! (C − L) + R·t/P + r + s ≤ C + R·t/P.
//!
//! In a window, every unit that is granted is counted in the window of the grant, and a lease
//! ends with its window. So the units admitted in a window are at most those counted in it, at
//! most C.
//!
//! If a holder crashes, or its request or the reply is lost, its units stay out until the grant
//! ends. That only takes units from others, because they were charged.
//!
//! # If the store loses its state
//!
//! Then a bucket is full again and nothing is known to be out, while at most L units that were
//! charged before, the old ones, can still be spent or returned. The bound above holds for all
//! that is charged after the loss, except for reports about old units: one may match a new grant
//! that ends at the same instant, return its units to the new state, and make the store forget
//! as many new units that are out.
//!
//! Let an interval include the loss, and let r old units return after it. Before the
//! loss, at most (C − L) + R·t'/P is charged, and of the units that were out at its begin and
//! of those charged, r are not admitted. After it, at most (C − L) + R·t"/P + r is charged. So
//! at most 2C − L + R·t/P is admitted: C − L more.
//!
//! Let an interval begin after the loss. New units that are out are at most L, and those that
//! the store has forgotten. Each of these stands for an old unit that was reported, so with the
//! old ones that are still out, at most 2L units are out when the interval begins. So at most
//! C + L + R·t/P is admitted: L more.
//!
//! Since L is at most half of C, each loss admits at most C − L more, less than the quota C. A
//! window that is lost is counted from nothing: what was counted before may be spent, and C is
//! counted again.
//!
//! `spec/proofs/leases.py` has these proofs for a machine, for any number of instances, and
//! `spec/tla/Leases.tla` models the protocol.
//!
//! # What it costs
//!
//! Leased units that are not spent are unavailable to others until they return or end; in a
//! window, those of a holder that crashes are gone until the window ends. So a holder wants at
//! most twice what it used within the length of a lease (`LeaseHolder` of the Redis store). One
//! grant is at most half of the units that may still be leased and half of what is left, so one
//! holder does not take all of it.

use smallvec::SmallVec;

use super::bucket::{self, Bucket};
use super::window::{self, Counts};
use super::{Cell, Verdict};
use crate::algorithm::Mode;
use crate::lease::{BandLease, MAX_LEASE};
use crate::limit::Limit;
use crate::time::{Micros, Timestamp};

/// The number of parts into which the span of a lease is cut, to round the end of grants.
const PARTS: u64 = 8;
/// The most ends that are kept; nothing is granted until one has passed. Leases of one span have
/// at most ten.
pub const MAX_ENDS: usize = 32;
/// A holder does not use one part in this many of the life of a grant. Clocks differ by less.
const MARGIN: u64 = 64;

/// The units of a band that are out on lease, by the instant at which they end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outstanding(SmallVec<[(u64, u32); 10]>);

/// The report of a holder about a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantReport {
    /// When the grant ends, which identifies it.
    pub ends: u64,
    /// Units spent and not reported before.
    pub spent: u32,
    /// Units that the holder returns.
    pub returned: u32,
}

/// A holder's request for units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The most units that it can use.
    pub want: u32,
    reports: SmallVec<[GrantReport; 2]>,
}

impl LeaseRequest {
    /// Creates a request for at most `want` units, with reports about earlier grants.
    pub fn new(want: u32, reports: impl IntoIterator<Item = GrantReport>) -> Self {
        let reports = reports.into_iter().collect();
        Self { want, reports }
    }

    /// Returns the reports about earlier grants.
    pub fn reports(&self) -> &[GrantReport] {
        &self.reports
    }
}

/// The answer to a [`LeaseRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The units granted; may be none.
    pub units: u32,
    /// When they end by the store's clock, in microseconds.
    pub ends: u64,
    /// What is left of the window, if the limit is one.
    pub window_left: Option<Micros>,
    /// All units that are out, these included.
    pub outstanding: u32,
}

impl Outstanding {
    /// Creates it from what a store has kept.
    pub fn new(ends: impl IntoIterator<Item = (u64, u32)>) -> Self {
        Self(ends.into_iter().collect())
    }

    /// Returns the ends and the units.
    pub fn ends(&self) -> &[(u64, u32)] {
        &self.0
    }

    /// Returns the sum of the units.
    pub fn units(&self) -> u32 {
        self.0.iter().map(|(_, units)| units).sum()
    }

    /// Drops what has ended. Ends that are further away than any lease lasts were made
    /// before the clock went back.
    fn settle(&mut self, now: Timestamp) {
        let furthest = now.micros() + MAX_LEASE.get() + MAX_LEASE.get() / PARTS;
        self.0.retain(|(ends, _)| *ends > now.micros());
        let mut late = 0;
        self.0.retain(|(ends, units)| {
            let is_late = *ends > furthest;
            late += if is_late { *units } else { 0 };
            !is_late
        });
        if late > 0 {
            self.add(furthest, late);
        }
    }

    fn add(&mut self, ends: u64, units: u32) {
        match self.0.iter_mut().find(|(other, _)| *other == ends) {
            Some((_, known)) => *known += units,
            None => self.0.push((ends, units)),
        }
    }

    /// Removes reported units. Returns whether that many were out.
    fn take(&mut self, report: &GrantReport) -> bool {
        let known = self.0.iter_mut().find(|(ends, _)| *ends == report.ends);
        let Some((_, units)) = known else {
            return false;
        };
        let left = report.spent.checked_add(report.returned);
        let Some(left) = left.and_then(|reported| units.checked_sub(reported)) else {
            // The store has lost the grant, so the units belong to others.
            return false;
        };
        *units = left;
        self.0.retain(|(_, units)| *units > 0);
        true
    }
}

impl Grant {
    /// Returns how long a holder may spend the units, from before it sent the request.
    pub fn usable_for(&self, lease: &BandLease) -> Micros {
        let whole = self.window_left.unwrap_or(MAX_LEASE).min(lease.span());
        // The two clocks show whole microseconds: the store's may be up to one ahead of what it shows.
        let shown = whole.get().saturating_sub(1);
        Micros::new(shown - shown.div_ceil(MARGIN))
    }
}

/// Answers a lease request. Returns the grant and the state after it. A request that is granted
/// nothing and reports nothing changes nothing.
pub fn grant(
    lease: &BandLease,
    stored: Option<Cell>,
    kept: &mut Outstanding,
    now: Timestamp,
    request: &LeaseRequest,
) -> (Grant, Option<Cell>) {
    let mut outstanding = kept.clone();
    outstanding.settle(now);
    let mut cell = stored;
    let mut is_changed = false;
    for report in &request.reports {
        let was_out = outstanding.take(report);
        is_changed |= was_out;
        if let Some(stored) = cell.filter(|_| was_out && report.returned > 0) {
            cell = Cell::refund(lease.shared(), stored, now, report.returned.into());
        }
    }
    let leasable = lease.most().saturating_sub(outstanding.units().into());
    let room = if outstanding.0.len() < MAX_ENDS {
        leasable.div_ceil(2).min(request.want.into())
    } else {
        0
    };
    let (units, window_end, after) = take(lease.shared(), cell, now, room);
    let width = lease.span().get() / PARTS;
    let unrounded = now.micros() + lease.span().get();
    let rounded = unrounded - unrounded % width + width;
    let ends = window_end.map_or(rounded, |end| rounded.min(end));
    if units > 0 {
        outstanding.add(ends, units);
        cell = after;
        is_changed = true;
    }
    let granted = Grant {
        units,
        ends,
        window_left: window_end.map(|end| Micros::new(end - now.micros())),
        outstanding: outstanding.units(),
    };
    if is_changed {
        *kept = outstanding;
    }
    (granted, cell)
}

/// Takes at most `room` units. Returns how many, when the window ends, and the state after it.
fn take(
    limit: &Limit,
    stored: Option<Cell>,
    now: Timestamp,
    room: u64,
) -> (u32, Option<u64>, Option<Cell>) {
    if limit.algorithm().is_bucket() {
        let stored = stored.and_then(Cell::bucket);
        let (units, after) = take_of_bucket(limit, stored, now, room);
        return (units, None, after.map(Cell::Bucket));
    }
    let window::Settled { counts, end, .. } =
        window::settle(limit, stored.and_then(Cell::counts), now);
    let counts = Counts {
        previous: 0,
        ..counts
    };
    let left = limit.capacity().saturating_sub(counts.current.into());
    // At most a capacity.
    let units = left.div_ceil(2).min(room) as u32;
    (
        units,
        Some(end),
        Some(Cell::Counts(counts.plus(units.into()))),
    )
}

fn take_of_bucket(
    limit: &Limit,
    stored: Option<Bucket>,
    now: Timestamp,
    room: u64,
) -> (u32, Option<Bucket>) {
    let rate = limit.rate();
    let (owed, _) = bucket::settle(rate, stored, now);
    let left = limit.capacity().saturating_sub(rate.units_in(owed));
    // At most a capacity.
    let units = left.div_ceil(2).min(room) as u32;
    (units, bucket::charge(rate, stored, now, owed, units.into()))
}

/// Returns what a shared limit has left in a state.
pub fn balance_of(limit: &Limit, stored: Option<Cell>, now: Timestamp) -> Verdict {
    Cell::assess(limit, stored, now, 0, Mode::Peek).verdict
}
