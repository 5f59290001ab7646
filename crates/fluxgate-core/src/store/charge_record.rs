//! What a hold or a reservation has charged.

use super::counters::Counters;
use super::{Checks, Group};
use crate::algorithm::{Adjustment, Charged, Verdict};
use crate::band::Band;
use crate::hold::{HoldId, Settled, Settlement};
use crate::limit::{Algorithm, FracMicros};
use crate::time::{Micros, Timestamp};

/// What a hold or a reservation has charged, with `K` for the key of a counter.
#[derive(Clone, Debug)]
pub(crate) struct ChargeRecord<K> {
    /// When it ends, or ended at the last look if it has slots.
    pub(crate) end: u64,
    /// Until when its request waits. So long it can be cancelled, even if the hold has ended.
    pub(crate) waits_until: u64,
    /// Whether it is the record of a reservation whose request is held.
    pub(crate) is_held: bool,
    pub(crate) parts: Box<[ChargedPart<K>]>,
}

/// What was charged to one counter.
#[derive(Clone, Debug)]
pub(crate) struct ChargedPart<K> {
    pub(crate) key: K,
    pub(crate) band: Band,
    pub(crate) units: u64,
    /// Where the units went.
    pub(crate) mark: FracMicros,
    /// The attribute that the rule counts, if it counts one.
    pub(crate) attribute: Option<Box<str>>,
}

impl<K> ChargedPart<K> {
    fn has_slots(&self) -> bool {
        self.band.algorithm() == Algorithm::Concurrency
    }
}

impl<K> ChargeRecord<K> {
    /// Returns what checks have charged, if they have a hold and charged anything. `log_mark`
    /// returns the event that the log of a check was charged by, `key` the key of its counter.
    pub(crate) fn of(
        checks: &Checks<'_>,
        verdicts: &[Verdict],
        now: Timestamp,
        log_mark: impl Fn(usize) -> Option<u64>,
        key: impl Fn(usize) -> K,
    ) -> Option<Self> {
        let hold = checks.hold().filter(|_| checks.mode().takes())?;
        let list = checks.list();
        let passes = |group: Group| {
            let mut of_group = list.iter().zip(verdicts);
            of_group.all(|(check, verdict)| check.group != group || verdict.passes())
        };
        if !passes(Group::ENFORCED) {
            return None;
        }
        let parts: Box<[_]> = list
            .iter()
            .enumerate()
            .zip(verdicts)
            .filter(|((_, check), _)| check.cost > 0 && passes(check.group))
            .map(|((index, check), verdict)| ChargedPart {
                key: key(index),
                band: check.band.clone(),
                units: check.cost,
                mark: match log_mark(index) {
                    Some(whole) => FracMicros { whole, part: 0 },
                    None => Charged::by(verdict).mark(check.band.limit()),
                },
                attribute: hold.attributes()[index].map(Into::into),
            })
            .collect();
        if parts.is_empty() {
            return None;
        }
        let slots = parts.iter().filter(|part| part.has_slots());
        let span = slots
            .map(|part| hold.span_of_slots(part.band.limit()))
            .max()
            .unwrap_or_else(|| hold.span_without_slots());
        let enforced = list
            .iter()
            .zip(verdicts)
            .filter(|(check, _)| check.group == Group::ENFORCED);
        let wait = enforced.map(|(_, verdict)| verdict.delay.get()).max();
        Some(Self {
            end: now.micros() + span.get(),
            waits_until: now.micros() + wait.unwrap_or(0),
            is_held: false,
            parts,
        })
    }

    /// Returns whether the hold can still be settled or cancelled.
    pub(crate) fn is_needed(&self, now: Timestamp) -> bool {
        self.end.max(self.waits_until) > now.micros()
    }

    /// Returns whether the request still waits.
    pub(crate) fn is_waiting(&self, now: Timestamp) -> bool {
        self.waits_until > now.micros()
    }

    /// Returns whether a settlement applies: the hold has not ended, or a request that waits is
    /// cancelled.
    pub(crate) fn can_settle(
        &self,
        counters: &mut impl Counters,
        hold: HoldId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> bool {
        let is_cancelled = settlement == Settlement::Cancelled && self.is_waiting(now);
        is_cancelled || self.is_live(counters, hold, now)
    }

    /// Releases the slots, and changes the charges to the real cost.
    pub(crate) fn settle(
        &self,
        counters: &mut impl Counters,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Settled {
        let cost_of =
            |part: &ChargedPart<K>| settlement.cost_of(part.units, part.attribute.as_deref());
        let mut uncharged = 0;
        for (at, part) in self.parts.iter().enumerate() {
            if part.has_slots() {
                counters.release(at, &part.band, hold);
                continue;
            }
            let adjustment = Adjustment {
                reserved: part.units,
                cost: cost_of(part),
                mark: part.mark,
            };
            if adjustment.is_needed() {
                uncharged = uncharged.max(counters.adjust(at, &part.band, &adjustment));
            }
        }
        let cost = self.parts.iter().map(cost_of).max().unwrap_or(0);
        Settled {
            charged: cost.saturating_sub(uncharged),
            uncharged,
        }
    }

    /// Extends the hold to `span` from `now`. Returns whether it is still held.
    pub(crate) fn renew(
        &mut self,
        counters: &mut impl Counters,
        hold: HoldId,
        span: Micros,
        now: Timestamp,
    ) -> bool {
        if !self.is_live(counters, hold, now) {
            return false;
        }
        let slots = self
            .parts
            .iter()
            .enumerate()
            .filter(|(_, part)| part.has_slots());
        let ends = slots.filter_map(|(at, part)| counters.renew(at, &part.band, hold, span));
        self.end = ends.max().unwrap_or(now.micros() + span.get());
        true
    }

    /// Returns whether the hold has not ended. One with slots ends with the last of them.
    pub(crate) fn is_live(
        &self,
        counters: &mut impl Counters,
        hold: HoldId,
        now: Timestamp,
    ) -> bool {
        let slots = self
            .parts
            .iter()
            .enumerate()
            .filter(|(_, part)| part.has_slots());
        let end = slots
            .filter_map(|(at, part)| counters.end_of_slots(at, &part.band, hold))
            .max();
        end.unwrap_or(self.end) > now.micros()
    }
}
