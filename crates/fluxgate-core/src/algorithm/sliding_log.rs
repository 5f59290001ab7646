//! Sliding log: the time of every admitted unit.
//!
//! Units of one instant are one event with a count. An event that a newer one has
//! pushed out of the window never counts again, even if the clock goes back, because
//! no decision is made before the newest event. It is dropped when that is written.

use std::collections::VecDeque;
use std::collections::vec_deque::Iter;

use super::verdict::{EffectiveTime, Mode, Verdict};
use crate::limit::{FracMicros, Limit};
use crate::time::{Micros, Retry, Timestamp};

/// A coarse log divides its window into this many parts, and has one event for each.
const PARTS: u64 = 8;

/// The events of a log, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    events: VecDeque<Event>,
    /// The sum over all events, so that a decision need not compute it.
    units: u64,
    window: Micros,
    /// How far the log was moved back in total. The time of an event plus this never changes, so it
    /// identifies the event.
    moved: i64,
    pub(crate) keeps_gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    /// Signed, because a log that is moved back may begin before the epoch.
    at: i64,
    units: u32,
}

/// A verdict on a [`Log`], and what may be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogAssessment {
    /// The verdict.
    pub verdict: Verdict,
    /// How far the log must be moved back, even if nothing is charged.
    pub correction: Option<u64>,
    /// Whether a charge would add units.
    pub charges: bool,
    at: i64,
    cost: u64,
}

/// The parts of a log that an assessment needs. A store that keeps the events
/// elsewhere can compute them without reading all events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// The time of its newest event.
    pub newest: Option<i64>,
    /// The units that count at `now`, or at the newest event if that is later.
    pub counted: u64,
    /// The event that must leave the window before the request fits, if it does not
    /// fit now but can.
    pub leaves: Option<i64>,
}

impl LogSummary {
    /// Assesses a request of `cost` units at `now`.
    pub fn assess(&self, limit: &Limit, now: Timestamp, cost: u64, mode: Mode) -> LogAssessment {
        let (time, correction) = settle(limit, self.newest, now);
        let width = limit.window().get() as i64;
        // A correction that is not written yet moves the events and this instant alike,
        // so the spans between them hold.
        let at = time.at as i64 + correction.unwrap_or(0) as i64;
        let capacity = limit.capacity();

        let wait = if cost > capacity {
            Retry::Never
        } else {
            let wait = self.leaves.map_or(0, |leaves| leaves + width - at);
            Retry::After(time.as_seen_by_clock(wait as u64))
        };
        let charges = wait == Retry::NOW && cost > 0;
        let (used, newest) = if charges && mode.reports_charge() {
            (self.counted + cost, Some(at))
        } else {
            (self.counted, self.newest.filter(|_| self.counted > 0))
        };
        let reset_after = newest.map_or(Micros::ZERO, |newest| {
            time.as_seen_by_clock((newest + width - at) as u64)
        });
        LogAssessment {
            verdict: Verdict::new(now, wait, capacity.saturating_sub(used), reset_after),
            correction,
            charges,
            at: time.at as i64,
            cost,
        }
    }
}

/// Returns the instant to decide at, and how far the whole log must be moved back.
fn settle(limit: &Limit, newest: Option<i64>, now: Timestamp) -> (EffectiveTime, Option<u64>) {
    let clock = now.micros() as i64;
    let ahead = match newest {
        Some(newest) if newest > clock => (newest - clock) as u64,
        _ => return (EffectiveTime::of_clock(now), None),
    };
    if ahead > limit.window().get() {
        (EffectiveTime::of_clock(now), Some(ahead))
    } else {
        let at = now.micros() + ahead;
        (EffectiveTime { at, ahead }, None)
    }
}

impl LogAssessment {
    /// Returns the time of the event that a charge would add.
    pub fn at(&self) -> i64 {
        self.at
    }
}

impl Log {
    /// The most events that a coarse log has: one for each part of the window, of
    /// which the first and the last are cut.
    pub(crate) const MOST_COARSE_EVENTS: usize = PARTS as usize + 1;

    /// Assesses a request of `cost` units at `now`.
    pub fn assess(
        limit: &Limit,
        stored: Option<&Self>,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> LogAssessment {
        let summary = stored.map(|log| log.summary(limit, now, cost));
        summary.unwrap_or_default().assess(limit, now, cost, mode)
    }

    fn summary(&self, limit: &Limit, now: Timestamp, cost: u64) -> LogSummary {
        let newest = self.events.back().map(|event| event.at);
        let at = newest.map_or(0, |newest| newest.max(now.micros() as i64));
        let (mut live, counted) = self.live(at - limit.window().get() as i64);
        let mut leaves = None;
        if cost <= limit.capacity() {
            let mut too_many = (counted + cost).saturating_sub(limit.capacity());
            while let Some(event) = live.next().filter(|_| too_many > 0) {
                too_many = too_many.saturating_sub(event.units.into());
                leaves = Some(event.at);
            }
        }
        LogSummary {
            newest,
            counted,
            leaves,
        }
    }

    /// Applies the correction, which is due even if the request is not charged.
    pub fn correct(&mut self, assessment: &LogAssessment) {
        if let Some(back) = assessment.correction {
            for event in &mut self.events {
                event.at -= back as i64;
            }
            self.moved += back as i64;
        }
    }

    /// Adds the units, after [`Log::correct`].
    pub fn charge(&mut self, limit: &Limit, assessment: &LogAssessment) {
        self.add(limit, assessment.at, assessment.cost);
    }

    /// Adds an event that is not before any other.
    pub(super) fn add(&mut self, limit: &Limit, at: i64, cost: u64) {
        self.window = limit.window();
        let oldest = if self.keeps_gone {
            i64::MIN
        } else {
            at - limit.window().get() as i64
        };
        while let Some(gone) = self.events.pop_front_if(|event| event.at <= oldest) {
            self.units -= u64::from(gone.units);
        }
        self.units += cost;
        // Fits: callers add at most twice the capacity.
        let units = cost as u32;
        match self.events.back_mut() {
            Some(newest) if newest.at == at => newest.units += units,
            _ => self.events.push_back(Event { at, units }),
        }
        self.shrink();
    }

    /// Merges the events of each eighth of the window into the newest of them. A unit
    /// then leaves up to an eighth of the window late and never early, so no request
    /// passes that would have been denied before.
    pub(crate) fn coarsen(&mut self) {
        let width = self.window.get().div_ceil(PARTS).max(1) as i64;
        let mut last = 0;
        for index in 1..self.events.len() {
            let Event { at, units } = self.events[index];
            let merged = &mut self.events[last];
            if merged.at.div_euclid(width) == at.div_euclid(width) {
                merged.at = at;
                merged.units += units;
            } else {
                last += 1;
                self.events[last] = Event { at, units };
            }
        }
        self.events.truncate(last + 1);
        self.shrink();
    }

    /// Frees memory once more than half of it is unused.
    fn shrink(&mut self) {
        let events = self.events.len();
        if self.events.capacity() > 2 * events + 8 {
            self.events.shrink_to(events + events / 4);
        }
    }

    /// Removes units, the newest first.
    pub fn refund(&mut self, limit: &Limit, now: Timestamp, mut units: u64) {
        let settled = Self::assess(limit, Some(self), now, 0, Mode::Peek);
        self.correct(&settled);
        let oldest = settled.at - limit.window().get() as i64;
        while let Some(newest) = self.events.back_mut().filter(|event| event.at > oldest) {
            let back = units.min(newest.units.into());
            units -= back;
            self.units -= back;
            newest.units -= back as u32;
            if newest.units > 0 {
                break;
            }
            self.events.pop_back();
        }
    }

    /// Removes units only from the event at `at`. The newest units, which a refund takes, may
    /// belong to another request.
    pub fn cancel(&mut self, at: u64, units: u64) {
        self.take_off(at as i64, units);
    }

    fn take_off(&mut self, at: i64, units: u64) {
        let Ok(index) = self.events.binary_search_by_key(&at, |event| event.at) else {
            return;
        };
        let event = &mut self.events[index];
        let back = units.min(event.units.into());
        event.units -= back as u32;
        self.units -= back;
        if event.units == 0 {
            self.events.remove(index);
        }
    }

    /// Returns the units that count at the instant of an assessment, after [`Log::correct`].
    pub(super) fn counted_at(&self, limit: &Limit, assessment: &LogAssessment) -> u64 {
        let (_, units) = self.live(assessment.at - limit.window().get() as i64);
        units
    }

    /// Returns the identity of the event of a charge that was assessed like this: its time as
    /// if the log had never been moved back.
    pub(crate) fn mark_of(&self, assessment: &LogAssessment) -> u64 {
        (assessment.at + self.moved) as u64
    }

    /// Gives back units of the event with this identity.
    pub(super) fn return_units(&mut self, mark: FracMicros, units: u64) {
        if let Some(at) = (mark.whole as i64).checked_sub(self.moved) {
            self.take_off(at, units);
        }
    }

    /// Returns whether no event counts at `now` or later.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        let oldest = now.micros() as i64 - self.window.get() as i64;
        self.events.back().is_none_or(|newest| newest.at <= oldest)
    }

    /// Returns the time of the newest event; the epoch if there is none or it is older.
    pub fn newest(&self) -> u64 {
        let newest = self.events.back();
        newest.map_or(0, |event| u64::try_from(event.at).unwrap_or(0))
    }

    /// Returns the number of events: instants at which units were admitted.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Returns the units of all events.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns the events later than `after`, and their units.
    fn live(&self, after: i64) -> (impl Iterator<Item = &Event>, u64) {
        let first = self.events.partition_point(|event| event.at <= after);
        let sum = |events: Iter<'_, Event>| events.map(|event| u64::from(event.units)).sum::<u64>();
        // Sums the shorter part.
        let units = if first < self.events.len() - first {
            self.units - sum(self.events.range(..first))
        } else {
            sum(self.events.range(first..))
        };
        (self.events.range(first..), units)
    }
}
