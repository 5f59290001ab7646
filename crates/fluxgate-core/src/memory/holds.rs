//! The holds of the embedded store.
//!
//! Each has a record of what it charged. A record is removed before its charges are changed,
//! so a hold is settled once, by one caller.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;
use smallvec::SmallVec;

use super::locked::LockedKeys;
use super::table::{Key, Retention, Table};
use crate::algorithm::{Adjustment, Charged, Verdict};
use crate::band::Band;
use crate::hold::{HoldId, Settled, Settlement};
use crate::limit::{Algorithm, FracMicros};
use crate::store::{Checks, Group};
use crate::time::{Micros, Timestamp};

/// The bound on holds. At the bound a new one takes the place of one that ends soon: what it
/// reserved stays charged, and its slots are free when they end.
const MAX_HOLDS: usize = 1_000_000;
/// A power of two.
const SHARDS: usize = 64;
/// How many holds are compared for the one that ends first.
const CANDIDATES: usize = 8;
/// How many records an insertion inspects. With k, the records that are not needed any more are
/// at most 1/(k − 1) of those that are, if holds come and go at a steady rate.
const INSPECTED: usize = 4;

/// The holds of a store.
#[derive(Debug)]
pub(super) struct Holds {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug, Default)]
struct Shard {
    records: HashMap<HoldId, Record>,
    /// The ids of the records, in the order in which they are inspected, and of some that are
    /// gone.
    queue: VecDeque<HoldId>,
}

/// What a hold charged.
#[derive(Debug)]
pub(super) struct Record {
    /// When it ends, or ended at the last look if it has slots.
    pub(super) end: u64,
    /// Until when its request waits. So long it can be cancelled, even if the hold has ended.
    pub(super) waits_until: u64,
    /// Whether it is the record of a reservation whose request is held.
    pub(super) is_held: bool,
    pub(super) parts: Box<[Part]>,
}

/// What a hold charged to one counter.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) key: Key,
    pub(super) band: Band,
    pub(super) units: u64,
    /// Where the units went.
    pub(super) mark: FracMicros,
    /// The attribute that the rule counts, if it counts one.
    pub(super) attribute: Option<Box<str>>,
}

impl Part {
    fn has_slots(&self) -> bool {
        self.band.algorithm() == Algorithm::Concurrency
    }
}

impl Holds {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Records what checks have charged, if they charged anything.
    pub(super) fn record(
        &self,
        table: &Table,
        (keys, log_marks): (&[Key], &[(usize, u64)]),
        checks: &Checks<'_>,
        verdicts: &[Verdict],
        now: Timestamp,
    ) {
        let Some(hold) = checks.hold().filter(|_| checks.mode().takes()) else {
            return;
        };
        let list = checks.list();
        let passes = |group: Group| {
            let mut of_group = list.iter().zip(verdicts);
            of_group.all(|(check, verdict)| check.group != group || verdict.passes())
        };
        if verdicts.len() < list.len() && !passes(Group::ENFORCED) {
            return;
        }
        let parts = list.iter().enumerate().zip(verdicts);
        let parts = parts.filter(|((_, check), _)| check.cost > 0 && passes(check.group));
        // The last check of a counter charges it for those before.
        let mark_of = |index: usize| {
            let mut marks = log_marks.iter();
            marks.find(|(charged, _)| keys[*charged] == keys[index])
        };
        let parts = parts.map(|((index, check), verdict)| Part {
            key: keys[index],
            band: check.band.clone(),
            units: check.cost,
            mark: match mark_of(index) {
                Some((_, whole)) => FracMicros {
                    whole: *whole,
                    part: 0,
                },
                None => Charged::by(verdict).mark(check.band.limit()),
            },
            attribute: hold.attributes[index].map(Into::into),
        });
        let parts: Box<[Part]> = parts.collect();
        if parts.is_empty() || !passes(Group::ENFORCED) {
            return;
        }
        let slots = parts.iter().filter(|part| part.has_slots());
        let span = slots
            .map(|part| hold.span_of_slots(part.band.limit()))
            .max();
        let span = span.unwrap_or_else(|| hold.span_without_slots());
        let enforced = list.iter().zip(verdicts);
        let enforced = enforced.filter(|(check, _)| check.group == Group::ENFORCED);
        let wait = enforced.map(|(_, verdict)| verdict.delay.get()).max();
        let record = Record {
            end: now.micros() + span.get(),
            waits_until: now.micros() + wait.unwrap_or(0),
            is_held: false,
            parts,
        };
        self.insert(table, hold.id, record, now);
    }

    /// Inserts a record.
    pub(super) fn insert(&self, table: &Table, id: HoldId, record: Record, now: Timestamp) {
        let mut shard = self.shard(id);
        if table.retention == Retention::UntilFull {
            shard.sweep(now);
            if shard.records.len() >= MAX_HOLDS / SHARDS {
                shard.make_room(now);
            }
            shard.queue.push_back(id);
        }
        shard.records.insert(id, record);
    }

    /// Removes a record.
    pub(super) fn remove(&self, id: HoldId) -> Option<Record> {
        self.shard(id).records.remove(&id)
    }

    /// Settles a hold, unless it has ended.
    pub(super) fn settle(
        &self,
        table: &Table,
        hold: HoldId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Option<Settled> {
        let mut shard = self.shard(hold);
        let record = shard.records.get(&hold)?;
        let keys: SmallVec<[Key; 4]> = record.parts.iter().map(|part| part.key).collect();
        let mut locked = LockedKeys::new(table, &keys);
        let is_cancelled = settlement == Settlement::Cancelled;
        let is_waiting = record.waits_until > now.micros();
        if !(is_cancelled && is_waiting) && record.end_in(&mut locked, hold) <= now.micros() {
            // The clock may go back.
            if table.retention == Retention::UntilFull && !is_waiting {
                shard.records.remove(&hold);
            }
            return None;
        }
        let record = shard.records.remove(&hold)?;
        drop(shard);
        let cost_of = |part: &Part| settlement.cost_of(part.units, part.attribute.as_deref());
        let mut uncharged = 0;
        for (at, part) in record.parts.iter().enumerate() {
            if part.has_slots() {
                locked.release(at, &part.band, hold);
                continue;
            }
            let adjustment = Adjustment {
                reserved: part.units,
                cost: cost_of(part),
                mark: part.mark,
            };
            if adjustment.is_needed() {
                uncharged = uncharged.max(locked.adjust(at, &part.band, now, &adjustment));
            }
        }
        let cost = record.parts.iter().map(cost_of).max().unwrap_or(0);
        Some(Settled {
            charged: cost.saturating_sub(uncharged),
            uncharged,
        })
    }

    /// Lets a hold live for a time from `now` on. Returns whether it is still held.
    pub(super) fn renew(&self, table: &Table, hold: HoldId, span: Micros, now: Timestamp) -> bool {
        // Settling waits meanwhile, and no lock of a key is held when it locks the shard.
        let mut shard = self.shard(hold);
        let Some(record) = shard.records.get_mut(&hold) else {
            return false;
        };
        let keys: SmallVec<[Key; 4]> = record.parts.iter().map(|part| part.key).collect();
        let mut locked = LockedKeys::new(table, &keys);
        if record.end_in(&mut locked, hold) <= now.micros() {
            return false;
        }
        let slots = record.parts.iter().enumerate();
        let slots = slots.filter(|(_, part)| part.has_slots());
        let ends = slots.filter_map(|(at, part)| locked.renew(at, &part.band, hold, now, span));
        record.end = ends.max().unwrap_or(now.micros() + span.get());
        true
    }

    /// Returns whether a hold has not ended.
    pub(super) fn is_held(&self, table: &Table, hold: HoldId, now: Timestamp) -> bool {
        let shard = self.shard(hold);
        shard.records.get(&hold).is_some_and(|record| {
            let keys: SmallVec<[Key; 4]> = record.parts.iter().map(|part| part.key).collect();
            record.end_in(&mut LockedKeys::new(table, &keys), hold) > now.micros()
        })
    }

    /// Forgets a hold: its charges are final, and its slots are free when they end.
    pub(super) fn forget(&self, hold: HoldId) {
        self.remove(hold);
    }

    /// Returns the number of records, including those of holds that have expired.
    pub(super) fn len(&self) -> usize {
        let counts = self.shards.iter().map(|shard| lock(shard).records.len());
        counts.sum()
    }

    fn shard(&self, hold: HoldId) -> MutexGuard<'_, Shard> {
        lock(&self.shards[hold.bits() as usize % SHARDS])
    }
}

impl Record {
    /// Returns whether the hold can still be settled or cancelled.
    fn is_needed(&self, now: Timestamp) -> bool {
        self.end.max(self.waits_until) > now.micros()
    }

    /// Returns when the hold ends: with the last of its slots, if it has any.
    fn end_in(&self, locked: &mut LockedKeys<'_, '_>, hold: HoldId) -> u64 {
        let slots = self.parts.iter().enumerate();
        let slots = slots.filter(|(_, part)| part.has_slots());
        let end = slots
            .filter_map(|(at, _)| locked.end_of_slots(at, hold))
            .max();
        end.unwrap_or(self.end)
    }
}

impl Shard {
    /// Inspects the next few records and removes those that are no longer needed, so that memory
    /// use follows the number of live holds.
    fn sweep(&mut self, now: Timestamp) {
        for _ in 0..INSPECTED.min(self.queue.len()) {
            let Some(id) = self.queue.pop_front() else {
                return;
            };
            match self.records.get(&id) {
                Some(record) if record.is_needed(now) => self.queue.push_back(id),
                Some(_) => {
                    self.records.remove(&id);
                }
                None => {}
            }
        }
    }

    /// Removes all records that are no longer needed or, if there are none, one that ends soon.
    fn make_room(&mut self, now: Timestamp) {
        self.records.retain(|_, record| record.is_needed(now));
        if self.records.len() >= MAX_HOLDS / SHARDS {
            let some = self.records.iter().take(CANDIDATES);
            let first = some.min_by_key(|(_, record)| record.end);
            if let Some(id) = first.map(|(id, _)| *id) {
                self.records.remove(&id);
            }
        }
    }
}

/// Waits for the lock. A panic in another thread leaves nothing half-written, because each
/// write is one insertion or removal.
fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
