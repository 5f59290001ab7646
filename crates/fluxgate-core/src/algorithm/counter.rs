//! The state of a band under any algorithm.

use super::{
    Adjusted, Adjustment, Assessment, Cell, Log, LogAssessment, Mode, Slots, SlotsAssessment,
    Verdict,
};
use crate::hold::HoldId;
use crate::limit::{Algorithm, FracMicros, Limit};
use crate::time::{Micros, Timestamp};

/// The state of one band for one subject, under any algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Of a bucket or a counting window.
    Cell(Cell),
    /// Of a sliding log.
    Log(Log),
    /// Of a concurrency limit.
    Slots(Slots),
}

/// A verdict on a [`Counter`], and the change that a charge makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CounterAssessment {
    Cell(Assessment),
    Log(LogAssessment),
    Slots(SlotsAssessment),
}

impl CounterAssessment {
    pub(crate) fn verdict(&self) -> &Verdict {
        match self {
            Self::Cell(assessment) => &assessment.verdict,
            Self::Log(assessment) => &assessment.verdict,
            Self::Slots(assessment) => &assessment.verdict,
        }
    }
}

impl Counter {
    /// Returns whether the counter may be deleted: without it, every decision at `now` or later
    /// would be the same. `limit` is that of the band that the counter was last written for.
    ///
    /// If the clock goes back afterwards, the quota is full. A store that must not lose units then
    /// deletes counters later.
    pub fn is_expired(&self, limit: &Limit, now: Timestamp) -> bool {
        match self {
            Self::Log(log) => log.is_expired(now),
            Self::Slots(slots) => slots.is_expired(now),
            Self::Cell(cell) => {
                let verdict = Cell::assess(limit, Some(*cell), now, 0, Mode::PeekNow).verdict;
                let overhang = match cell {
                    Cell::Bucket(bucket) => bucket.overhang_at(now).micros(),
                    Cell::Counts(_) => 0,
                };
                verdict.reset_after == Micros::ZERO && overhang == 0
            }
        }
    }

    /// Assesses a request of `cost` units on `stored` at `now`. Slots are held for `span`, or
    /// for as long as the limit allows.
    pub(crate) fn assess(
        limit: &Limit,
        stored: Option<&Self>,
        now: Timestamp,
        cost: u64,
        mode: Mode,
        span: Option<Micros>,
    ) -> CounterAssessment {
        match limit.algorithm() {
            Algorithm::SlidingLog => {
                let log = stored.and_then(Self::log);
                CounterAssessment::Log(Log::assess(limit, log, now, cost, mode))
            }
            Algorithm::Concurrency => {
                let slots = stored.and_then(Self::slots);
                CounterAssessment::Slots(Slots::assess(limit, slots, now, cost, mode, span))
            }
            _ => {
                let cell = stored.and_then(Self::cell);
                CounterAssessment::Cell(Cell::assess(limit, cell, now, cost, mode))
            }
        }
    }

    /// Returns the verdict on a request of `cost` units after `units` are charged, whether or
    /// not they fit.
    pub(crate) fn assess_charged(
        limit: &Limit,
        stored: Option<Self>,
        now: Timestamp,
        units: u64,
        cost: u64,
    ) -> Verdict {
        let charged = if units == 0 {
            stored
        } else {
            Self::adjust(limit, stored, now, &Adjustment::charge(units)).0
        };
        let assessment = Self::assess(limit, charged.as_ref(), now, cost, Mode::PeekNow, None);
        *assessment.verdict()
    }

    /// Returns `stored` after a correction, which is due even if nothing is charged.
    pub(crate) fn correct(
        mut stored: Option<Self>,
        assessment: &CounterAssessment,
    ) -> Option<Self> {
        match (&mut stored, assessment) {
            (Some(Self::Cell(cell)), CounterAssessment::Cell(assessment)) => {
                *cell = assessment.corrected.unwrap_or(*cell);
            }
            (Some(Self::Log(log)), CounterAssessment::Log(assessment)) => log.correct(assessment),
            (Some(Self::Slots(slots)), CounterAssessment::Slots(assessment)) => {
                slots.correct(assessment);
            }
            _ => {}
        }
        stored
    }

    /// Returns `stored` after a charge that passes. Slots belong to `hold`.
    pub(crate) fn charge(
        limit: &Limit,
        stored: Option<Self>,
        assessment: &CounterAssessment,
        hold: Option<HoldId>,
    ) -> Option<Self> {
        let corrected = Self::correct(stored, assessment);
        match assessment {
            CounterAssessment::Cell(assessment) => assessment.charged.map(Self::Cell).or(corrected),
            CounterAssessment::Log(assessment) if assessment.charges => {
                let mut log = corrected.and_then(Self::into_log).unwrap_or_default();
                log.charge(limit, assessment);
                Some(Self::Log(log))
            }
            CounterAssessment::Slots(assessment) if assessment.charges => {
                let mut slots = corrected.and_then(Self::into_slots).unwrap_or_default();
                slots.charge(limit, assessment, hold, false);
                Some(Self::Slots(slots))
            }
            _ => corrected,
        }
    }

    /// Returns the counter with `units` refunded; `None` if nothing is owed any more. Slots are
    /// released by their holds only.
    pub(crate) fn refund(self, limit: &Limit, now: Timestamp, units: u64) -> Option<Self> {
        match self {
            Self::Cell(cell) => Cell::refund(limit, cell, now, units).map(Self::Cell),
            Self::Log(mut log) => {
                log.refund(limit, now, units);
                Self::Log(log).unless_empty()
            }
            Self::Slots(_) => Some(self),
        }
    }

    /// Returns the counter without the charge of `units` that went to `mark`; `None` if nothing
    /// is owed any more.
    pub(crate) fn cancel(
        self,
        limit: &Limit,
        now: Timestamp,
        units: u64,
        mark: FracMicros,
    ) -> Option<Self> {
        match self {
            Self::Cell(cell) => Cell::cancel(limit, cell, now, units, mark).map(Self::Cell),
            Self::Log(mut log) => {
                log.cancel(mark.whole, units);
                Self::Log(log).unless_empty()
            }
            Self::Slots(_) => Some(self),
        }
    }

    /// Changes a charge to its real cost. Returns the counter, and the units that did not fit.
    pub(crate) fn adjust(
        limit: &Limit,
        stored: Option<Self>,
        now: Timestamp,
        adjustment: &Adjustment,
    ) -> (Option<Self>, u64) {
        if limit.algorithm() == Algorithm::SlidingLog {
            let mut log = stored.and_then(Self::into_log).unwrap_or_default();
            let uncharged = log.adjust(limit, now, adjustment);
            return (Self::Log(log).unless_empty(), uncharged);
        }
        let cell = stored.as_ref().and_then(Self::cell);
        let Adjusted { state, uncharged } = Cell::adjust(limit, cell, now, adjustment);
        (state.map(Self::Cell).or(stored), uncharged)
    }

    /// Returns the counter without the slots of a hold; `None` if no slots are left.
    pub(crate) fn release(mut self, hold: HoldId) -> Option<Self> {
        if let Self::Slots(slots) = &mut self {
            slots.release(hold);
        }
        self.unless_empty()
    }

    /// Returns the slots, if it has any.
    fn slots(&self) -> Option<&Slots> {
        match self {
            Self::Slots(slots) => Some(slots),
            _ => None,
        }
    }

    fn cell(&self) -> Option<Cell> {
        match self {
            Self::Cell(cell) => Some(*cell),
            _ => None,
        }
    }

    fn log(&self) -> Option<&Log> {
        match self {
            Self::Log(log) => Some(log),
            _ => None,
        }
    }

    fn into_log(self) -> Option<Log> {
        match self {
            Self::Log(log) => Some(log),
            _ => None,
        }
    }

    fn into_slots(self) -> Option<Slots> {
        match self {
            Self::Slots(slots) => Some(slots),
            _ => None,
        }
    }

    fn unless_empty(self) -> Option<Self> {
        let is_empty = match &self {
            Self::Cell(_) => false,
            Self::Log(log) => log.events() == 0,
            Self::Slots(slots) => slots.holds() == 0,
        };
        (!is_empty).then_some(self)
    }
}
