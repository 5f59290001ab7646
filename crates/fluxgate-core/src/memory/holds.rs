//! The holds of the embedded store, and the reservations that are cancelled by their ids.
//!
//! Each has a record of what it charged. A record is removed before its charges are changed,
//! so a hold is settled once, by one caller.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;
use smallvec::SmallVec;

use super::entry::Key;
use super::locked::LockedKeys;
use super::table::{Retention, Table};
use crate::algorithm::Verdict;
use crate::hold::{HoldId, Settled, Settlement};
use crate::store::{ChargeRecord, ChargedPart, Checks, KeptReservation, ReservedCharge};
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

/// What a hold charged.
type Record = ChargeRecord<Key>;

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
        // The last check of a counter charges it for those before.
        let log_mark = |index: usize| {
            let mut marks = log_marks.iter();
            let mark = marks.find(|(charged, _)| keys[*charged] == keys[index]);
            mark.map(|(_, mark)| *mark)
        };
        let record = Record::of(checks, verdicts, now, log_mark, |index| keys[index]);
        if let (Some(hold), Some(record)) = (checks.hold(), record) {
            self.insert(table, hold.id, record, now);
        }
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
        let mut locked = LockedKeys::new(table, &keys, now);
        if !record.can_settle(&mut locked, hold, settlement, now) {
            // The clock may go back.
            if table.retention == Retention::UntilFull && !record.is_waiting(now) {
                shard.records.remove(&hold);
            }
            return None;
        }
        let record = shard.records.remove(&hold)?;
        drop(shard);
        Some(record.settle(&mut locked, hold, settlement))
    }

    /// Extends a hold to `span` from `now`. Returns whether it is still held.
    pub(super) fn renew(&self, table: &Table, hold: HoldId, span: Micros, now: Timestamp) -> bool {
        // Settling waits meanwhile, and no lock of a key is held when it locks the shard.
        let mut shard = self.shard(hold);
        let Some(record) = shard.records.get_mut(&hold) else {
            return false;
        };
        let keys: SmallVec<[Key; 4]> = record.parts.iter().map(|part| part.key).collect();
        let mut locked = LockedKeys::new(table, &keys, now);
        record.renew(&mut locked, hold, span, now)
    }

    /// Returns whether a hold has not ended.
    pub(super) fn is_held(&self, table: &Table, hold: HoldId, now: Timestamp) -> bool {
        let shard = self.shard(hold);
        shard.records.get(&hold).is_some_and(|record| {
            let keys: SmallVec<[Key; 4]> = record.parts.iter().map(|part| part.key).collect();
            record.is_live(&mut LockedKeys::new(table, &keys, now), hold, now)
        })
    }

    /// Keeps a reservation, by the keys of each subject. Its record is removed before any units
    /// return, so they return only once.
    pub(super) fn keep(
        &self,
        table: &Table,
        reservation: &KeptReservation<'_>,
        keys_of: impl Fn(&ReservedCharge<'_>) -> SmallVec<[Key; 4]>,
        now: Timestamp,
    ) {
        let mut parts = Vec::new();
        for charge in &reservation.charges {
            let bands = charge.bands.iter().zip(charge.charged);
            for (key, (band, charged)) in keys_of(charge).into_iter().zip(bands) {
                parts.push(ChargedPart {
                    key,
                    band: band.clone(),
                    units: charge.units,
                    mark: charged.mark(band.limit()),
                    attribute: None,
                });
            }
        }
        let record = Record {
            end: reservation.until.micros(),
            waits_until: reservation.until.micros(),
            is_held: reservation.is_held,
            parts: parts.into(),
        };
        self.insert(table, reservation.id, record, now);
    }

    /// Removes a reservation of a request that still waits.
    pub(super) fn take(&self, id: HoldId, now: Timestamp) -> Option<Record> {
        self.remove(id).filter(|record| record.end > now.micros())
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
/// Cancels the charges of a reservation.
pub(super) fn cancel(table: &Table, record: &Record, now: Timestamp) {
    let keys: SmallVec<[Key; 4]> = record.parts.iter().map(|part| part.key).collect();
    let mut locked = LockedKeys::new(table, &keys, now);
    for (at, part) in record.parts.iter().enumerate() {
        locked.cancel(at, &part.band, part.units, part.mark);
    }
}

fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
