//! Concurrency: slots that are held until they are released or expire.
//!
//! A request takes as many slots as it costs. They end together, with the hold of the request
//! or at their own end, whichever comes first. A slot counts as long as its end is after the
//! present, so the number of slots that are held at any instant is at most the capacity:
//! a request that is admitted finds all others that are held by then, and renewal never revives a
//! slot that has ended.

use super::verdict::{Mode, Verdict};
use crate::hold::HoldId;
use crate::limit::Limit;
use crate::time::{Micros, Retry, Timestamp};

/// The number of parts of the longest hold into which slots are merged when there are too
/// many.
const PARTS: u64 = 8;

/// The slots of one key, by their ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    held: Vec<HeldSlots>,
    /// The sum over all of them, so that a decision need not compute it.
    units: u64,
    /// The least of [`HeldSlots::longest`], or less.
    shortest: Micros,
}

/// The slots of one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldSlots {
    end: u64,
    units: u32,
    /// How far from the present they may end, by the rule that took them.
    longest: Micros,
    /// `None` if they cannot be released: slots of several holds were merged, or they have
    /// no hold.
    hold: Option<HoldId>,
}

/// A verdict on [`Slots`], and what may be done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotsAssessment {
    /// The verdict.
    pub verdict: Verdict,
    /// Whether slots end too late, because the clock went back. They are corrected even if
    /// nothing is charged.
    pub is_corrected: bool,
    /// Whether a charge would take slots.
    pub charges: bool,
    now: Timestamp,
    cost: u64,
    end: u64,
}

impl Slots {
    /// Assesses a request for `cost` slots at `now`. They would be held for `span`, or for as
    /// long as the limit allows if that is shorter or none is given.
    pub fn assess(
        limit: &Limit,
        stored: Option<&Self>,
        now: Timestamp,
        cost: u64,
        mode: Mode,
        span: Option<Micros>,
    ) -> SlotsAssessment {
        let is_corrected = stored.is_some_and(|slots| slots.end_too_late(now));
        if let Some(stored) = stored.filter(|_| is_corrected) {
            let mut corrected = stored.clone();
            corrected.end_in_time(now);
            let assessment = Self::assess(limit, Some(&corrected), now, cost, mode, span);
            return SlotsAssessment {
                is_corrected,
                ..assessment
            };
        }
        let longest = limit.window();
        let span = span.map_or(longest, |span| span.min(longest));
        let (held, taken) = stored.map(|slots| slots.held_at(now)).unwrap_or_default();
        let capacity = limit.capacity();
        let wait = if cost > capacity {
            Retry::Never
        } else {
            let too_many = (taken + cost).saturating_sub(capacity);
            Retry::After(Micros::new(wait(held, now, too_many)))
        };
        let charges = wait == Retry::NOW && cost > 0;
        let last = held.last().map_or(0, |held| held.end - now.micros());
        let (used, last) = if charges && mode.reports_charge() {
            (taken + cost, last.max(span.get()))
        } else {
            (taken, last)
        };
        let remaining = capacity.saturating_sub(used);
        SlotsAssessment {
            verdict: Verdict::new(now, wait, remaining, Micros::new(last)),
            is_corrected,
            charges,
            now,
            cost,
            end: now.micros() + span.get(),
        }
    }

    /// Returns the slots that are held at `now`, and their number.
    fn held_at(&self, now: Timestamp) -> (&[HeldSlots], u64) {
        let first = self.held.partition_point(|held| held.end <= now.micros());
        let (ended, held) = self.held.split_at(first);
        let sum = |held: &[HeldSlots]| held.iter().map(|held| u64::from(held.units)).sum::<u64>();
        let units = if ended.len() < held.len() {
            self.units - sum(ended)
        } else {
            sum(held)
        };
        (held, units)
    }

    /// Returns whether slots would end later than their rule allows: the clock went back.
    fn end_too_late(&self, now: Timestamp) -> bool {
        let latest = self.last_end().saturating_sub(now.micros());
        let is_late = |held: &HeldSlots| held.end > now.micros() + held.longest.get();
        latest > self.shortest.get() && self.held.iter().any(is_late)
    }

    fn end_in_time(&mut self, now: Timestamp) {
        for held in &mut self.held {
            held.end = held.end.min(now.micros() + held.longest.get());
        }
        self.held.sort_by_key(|held| held.end);
    }

    /// Ends slots that would end too late at the latest instant that their rule allows.
    pub fn correct(&mut self, assessment: &SlotsAssessment) {
        if assessment.is_corrected {
            self.end_in_time(assessment.now);
        }
    }

    /// Takes the slots for a hold, after [`Slots::correct`]. Slots that have ended are
    /// dropped unless `keep_ended` is set.
    pub fn charge(
        &mut self,
        limit: &Limit,
        assessment: &SlotsAssessment,
        hold: Option<HoldId>,
        keep_ended: bool,
    ) {
        if !keep_ended {
            self.drop_ended(assessment.now);
        }
        self.insert(HeldSlots {
            end: assessment.end,
            // A cost that passes is at most the capacity.
            units: assessment.cost as u32,
            longest: limit.window(),
            hold,
        });
    }

    fn insert(&mut self, held: HeldSlots) {
        self.shortest = if self.held.is_empty() {
            held.longest
        } else {
            self.shortest.min(held.longest)
        };
        self.units += u64::from(held.units);
        let index = self.held.partition_point(|other| other.end <= held.end);
        self.held.insert(index, held);
    }

    fn drop_ended(&mut self, now: Timestamp) {
        let ended = self.held.partition_point(|held| held.end <= now.micros());
        let ended = self.held.drain(..ended);
        self.units -= ended.map(|held| u64::from(held.units)).sum::<u64>();
        if self.held.capacity() > 2 * self.held.len() + 8 {
            self.held.shrink_to(self.held.len() + self.held.len() / 4);
        }
    }

    /// Returns when the slots of a hold end, if it has any.
    pub fn end_of(&self, hold: HoldId) -> Option<u64> {
        // The last ones are still held.
        let mut held = self.held.iter().rev();
        held.find(|held| held.hold == Some(hold))
            .map(|held| held.end)
    }

    /// Releases the slots of a hold.
    pub fn release(&mut self, hold: HoldId) {
        let released = self.take(hold);
        debug_assert!(released.is_none_or(|held| held.hold == Some(hold)));
    }

    /// Extends the slots of a hold to `span` from `now`, or as far as their rule allows.
    /// Returns when; `None` if they have ended or there are none.
    pub fn renew(&mut self, hold: HoldId, now: Timestamp, span: Micros) -> Option<u64> {
        let is_held = self.end_of(hold).is_some_and(|end| end > now.micros());
        let mut held = is_held.then(|| self.take(hold)).flatten()?;
        held.end = now.micros() + span.min(held.longest).get();
        self.insert(held);
        Some(held.end)
    }

    fn take(&mut self, hold: HoldId) -> Option<HeldSlots> {
        let index = self.held.iter().rposition(|held| held.hold == Some(hold))?;
        let held = self.held.remove(index);
        self.units -= u64::from(held.units);
        Some(held)
    }

    /// Merges the slots that end in the same eighth of the longest hold into one that ends
    /// with the last of them. They can no longer be released, so they are free late, and
    /// never early.
    pub(crate) fn coarsen(&mut self) {
        let Some(longest) = self.held.iter().map(|held| held.longest.get()).max() else {
            return;
        };
        let width = longest.div_ceil(PARTS).max(1);
        self.held.dedup_by(|later, earlier| {
            let is_same = later.end / width == earlier.end / width;
            if is_same {
                earlier.end = later.end;
                earlier.units = earlier.units.saturating_add(later.units);
                earlier.longest = earlier.longest.max(later.longest);
                earlier.hold = None;
            }
            is_same
        });
    }

    /// Returns whether nothing is held at `now` or later.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.last_end() <= now.micros()
    }

    /// Returns when the last slot ends; the epoch if there is none.
    pub fn last_end(&self) -> u64 {
        self.held.last().map_or(0, |held| held.end)
    }

    /// Returns the number of holds that have slots.
    pub fn holds(&self) -> usize {
        self.held.len()
    }

    /// Returns the slots of all holds.
    pub fn units(&self) -> u64 {
        self.units
    }
}

/// Returns the time until `too_many` of these slots have ended.
fn wait(held: &[HeldSlots], now: Timestamp, mut too_many: u64) -> u64 {
    let mut wait = 0;
    for held in held {
        if too_many == 0 {
            break;
        }
        too_many = too_many.saturating_sub(held.units.into());
        wait = held.end - now.micros();
    }
    wait
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * SECOND).unwrap()
    }

    fn limit(capacity: u64, hold: u64) -> Limit {
        let limit = Limit::concurrency(capacity).hold(Duration::from_secs(hold));
        limit.build().unwrap()
    }

    fn take(slots: &mut Slots, limit: &Limit, now: u64, cost: u64, hold: u128) -> Verdict {
        let assessment = Slots::assess(limit, Some(slots), at(now), cost, Mode::Take, None);
        slots.correct(&assessment);
        if assessment.charges {
            let hold = Some(HoldId::from_bits(hold));
            slots.charge(limit, &assessment, hold, false);
        }
        assessment.verdict
    }

    #[test]
    fn slots_are_free_when_they_are_released_or_have_ended() {
        let limit = limit(3, 10);
        let mut slots = Slots::default();
        let first = take(&mut slots, &limit, 100, 2, 1);
        assert_eq!((first.remaining, first.reset_after.get()), (1, 10 * SECOND));
        let second = take(&mut slots, &limit, 104, 1, 2);
        assert_eq!(
            (second.remaining, second.reset_after.get()),
            (0, 10 * SECOND)
        );
        let denied = take(&mut slots, &limit, 105, 1, 3);
        assert_eq!(denied.retry_after, Retry::After(Micros::new(5 * SECOND)));
        let denied = take(&mut slots, &limit, 105, 3, 3);
        assert_eq!(denied.retry_after, Retry::After(Micros::new(9 * SECOND)));
        assert_eq!(
            take(&mut slots, &limit, 105, 4, 3).retry_after,
            Retry::Never
        );
        slots.release(HoldId::from_bits(2));
        assert!(take(&mut slots, &limit, 105, 1, 3).passes());
        // The two slots of the first hold end at this instant.
        assert!(take(&mut slots, &limit, 110, 2, 4).passes());
        assert_eq!(slots.units(), 3);
    }

    #[test]
    fn a_renewed_slot_lives_on_and_an_ended_one_does_not() {
        let limit = limit(1, 10);
        let mut slots = Slots::default();
        let hold = HoldId::from_bits(1);
        let _ = take(&mut slots, &limit, 100, 1, 1);
        let renewed = slots.renew(hold, at(109), Micros::new(60 * SECOND));
        assert_eq!(renewed, Some(119 * SECOND));
        assert!(!take(&mut slots, &limit, 118, 1, 2).passes());
        assert_eq!(slots.renew(hold, at(119), Micros::new(SECOND)), None);
        assert!(take(&mut slots, &limit, 119, 1, 2).passes());
    }

    #[test]
    fn a_slot_that_would_end_too_late_ends_as_late_as_its_rule_allows() {
        let limit = limit(1, 10);
        let mut slots = Slots::default();
        let _ = take(&mut slots, &limit, 100, 1, 1);
        let denied = take(&mut slots, &limit, 50, 1, 2);
        assert_eq!(denied.retry_after, Retry::After(Micros::new(10 * SECOND)));
        assert_eq!(slots.end_of(HoldId::from_bits(1)), Some(60 * SECOND));
        // A rule with a shorter hold does not end the slots of another.
        let shorter = self::limit(1, 2);
        let _ = take(&mut slots, &shorter, 55, 1, 2);
        assert_eq!(slots.end_of(HoldId::from_bits(1)), Some(60 * SECOND));
    }

    #[test]
    fn coarse_slots_are_free_late_and_never_early() {
        let limit = limit(100, 80);
        let mut slots = Slots::default();
        for hold in 0..20 {
            let _ = take(&mut slots, &limit, 1000 + hold, 1, hold.into());
        }
        let exact = slots.clone();
        slots.coarsen();
        assert!(slots.holds() <= 4 && slots.units() == 20);
        for now in 1000..1110 {
            let held = |slots: &Slots| slots.held_at(at(now)).1;
            assert!(held(&exact) <= held(&slots), "{now}");
        }
    }
}
