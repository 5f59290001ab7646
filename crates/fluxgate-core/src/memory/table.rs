//! All shards, and the locks that a request holds.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use siphasher::sip128::SipHasher13;
use smallvec::SmallVec;

use super::Retention;
use super::cells::{CellShard, Place};
use super::logs::LogShard;
use super::slot::{Print, Slot};
use crate::algorithm::{Assessment, Cell, Log, LogAssessment, Mode, Verdict};
use crate::limit::{Algorithm, Limit};
use crate::rules::{Band, RuleNumber};
use crate::time::Timestamp;

/// About this many keys share a lock when the table is full: few enough that
/// the cheapest of them is found at once, enough that one can be found.
const KEYS_PER_SHARD: usize = 256;
const MOST_SHARDS: usize = 4096;

/// All keys.
#[derive(Debug)]
pub(super) struct Table {
    /// Secret, so that nobody can make keys that meet.
    hasher: SipHasher13,
    cells: Box<[CellLock]>,
    logs: Box<[Mutex<LogShard>]>,
    live: AtomicUsize,
    max_keys: usize,
    retention: Retention,
}

/// A lock and its shard in one cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CellLock(Mutex<CellShard>);

/// A counter: one band of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    fingerprint: u128,
    lock: Lock,
    rule: RuleNumber,
}

/// Which lock guards a key. The order is the order of locking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lock {
    Cells(u32),
    Logs(u32),
}

impl Table {
    pub(super) fn new(max_keys: usize, retention: Retention) -> Self {
        let shards = (max_keys / KEYS_PER_SHARD)
            .next_power_of_two()
            .clamp(1, MOST_SHARDS);
        let random = || RandomState::new().hash_one(0);
        Self {
            hasher: SipHasher13::new_with_keys(random(), random()),
            cells: (0..shards).map(|_| CellLock::default()).collect(),
            logs: (0..shards.div_ceil(16)).map(|_| Mutex::default()).collect(),
            live: AtomicUsize::new(0),
            max_keys: max_keys.max(1),
            retention,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// The fingerprint of a subject.
    pub(super) fn fingerprint(&self, subject: &[u8]) -> u128 {
        self.hasher.hash(subject).as_u128()
    }

    /// The key of a band of the subject with this fingerprint.
    pub(super) fn key(&self, subject: u128, rule: RuleNumber, band: &Band) -> Key {
        // By the subject alone, so that all its bands are behind one lock.
        let spread = (subject >> 16) as usize;
        let lock = match band.limit().algorithm() {
            Algorithm::SlidingLog => Lock::Logs((spread % self.logs.len()) as u32),
            _ => Lock::Cells((spread & (self.cells.len() - 1)) as u32),
        };
        Key {
            fingerprint: subject ^ band.tag(),
            lock,
            rule,
        }
    }

    /// Locks what guards these keys.
    pub(super) fn hold(&self, keys: &[Key]) -> Held<'_> {
        let mut held = Held {
            table: self,
            guards: SmallVec::new(),
        };
        match keys {
            [] => {}
            [first, rest @ ..] if rest.iter().all(|key| key.lock == first.lock) => {
                held.guards.push((first.lock, self.lock(first.lock)));
            }
            _ => {
                let mut locks: SmallVec<[Lock; 8]> = keys.iter().map(|key| key.lock).collect();
                locks.sort_unstable();
                locks.dedup();
                held.guards = locks.iter().map(|lock| (*lock, self.lock(*lock))).collect();
            }
        }
        held
    }

    /// Judges one key and charges it if it passes: what [`Held`] does for many,
    /// without its bookkeeping.
    pub(super) fn take(&self, key: &Key, limit: &Limit, now: Timestamp, cost: u64) -> Verdict {
        let mut guard = self.lock(key.lock);
        let assessed = guard.assess(key, limit, now, cost, Mode::Take);
        if assessed.verdict().passes {
            guard.charge(self, key, limit, now, &assessed);
        } else {
            guard.correct(key, limit, &assessed);
        }
        *assessed.verdict()
    }

    /// Forgets every key of a rule; says how many.
    pub(super) fn remove_rule(&self, rule: RuleNumber) -> u64 {
        let mut gone = 0;
        for shard in &self.cells {
            let mut shard = lock(&shard.0);
            let here = shard.retain(|slot| slot.rule() != rule.get());
            self.live.fetch_sub(here, Ordering::Relaxed);
            gone += here;
        }
        for shard in &self.logs {
            let here = lock(shard).remove_rule(rule);
            self.live.fetch_sub(here, Ordering::Relaxed);
            gone += here;
        }
        gone as u64
    }

    fn lock(&self, which: Lock) -> Guard<'_> {
        match which {
            Lock::Cells(index) => Guard::Cells(lock(&self.cells[index as usize].0)),
            Lock::Logs(index) => Guard::Logs(lock(&self.logs[index as usize])),
        }
    }

    /// Counts one more key if there is room for it.
    fn try_grow(&self) -> bool {
        let grown = self
            .live
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
                (live < self.max_keys || self.retention == Retention::Forever).then_some(live + 1)
            });
        grown.is_ok()
    }

    fn insert(&self, shard: &mut CellShard, slot: Slot, now: Timestamp) {
        if shard.is_full() && self.retention == Retention::UntilFull {
            self.shrink(shard.retain(|slot| !slot.is_spent(now)));
        }
        if !self.try_grow() && !shard.evict(now) {
            // Full, and nothing here to forget: the one case in which the table
            // holds a key more. A charge is never dropped.
            self.live.fetch_add(1, Ordering::Relaxed);
        }
        shard.insert(slot);
    }

    fn shrink(&self, by: usize) {
        self.live.fetch_sub(by, Ordering::Relaxed);
    }
}

/// A panic elsewhere leaves no shard half-written: each write is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was found out about a key, to be written or not.
#[derive(Clone, Copy, Debug)]
pub(super) enum Assessed {
    /// With where the key stood then.
    Cell(Assessment, Option<Place>),
    Log(LogAssessment),
}

impl Assessed {
    pub(super) fn verdict(&self) -> &Verdict {
        match self {
            Self::Cell(assessment, _) => &assessment.verdict,
            Self::Log(assessment) => &assessment.verdict,
        }
    }
}

enum Guard<'t> {
    Cells(MutexGuard<'t, CellShard>),
    Logs(MutexGuard<'t, LogShard>),
}

impl Guard<'_> {
    /// Judges a key as it stands.
    fn assess(&self, key: &Key, limit: &Limit, now: Timestamp, cost: u64, mode: Mode) -> Assessed {
        match self {
            Guard::Cells(shard) => {
                let place = shard.find(Print::of(key.fingerprint));
                let cell = place.and_then(|place| shard.slot(place).cell());
                Assessed::Cell(Cell::assess(limit, cell, now, cost, mode), place)
            }
            Guard::Logs(shard) => {
                let log = shard.get(key.fingerprint);
                Assessed::Log(Log::assess(limit, log, now, cost, mode))
            }
        }
    }

    /// Writes what must be written though nothing is charged.
    fn correct(&mut self, key: &Key, limit: &Limit, assessed: &Assessed) {
        match (self, assessed) {
            (Guard::Cells(shard), Assessed::Cell(assessment, Some(_))) => {
                let print = Print::of(key.fingerprint);
                if let (Some(cell), Some(place)) = (&assessment.corrected, shard.find(print)) {
                    shard.set(place, Slot::new(print, key.rule, limit, cell));
                }
            }
            (Guard::Logs(shard), Assessed::Log(assessment)) => {
                if let Some(log) = shard.get_mut(key.fingerprint) {
                    log.correct(assessment);
                }
            }
            _ => {}
        }
    }

    /// Writes the charge of an assessment that passed.
    fn charge(
        &mut self,
        table: &Table,
        key: &Key,
        limit: &Limit,
        now: Timestamp,
        assessed: &Assessed,
    ) {
        match (self, assessed) {
            (Guard::Cells(shard), Assessed::Cell(assessment, place)) => {
                // A charge contains the correction.
                let Some(cell) = assessment
                    .charged
                    .as_ref()
                    .or(assessment.corrected.as_ref())
                else {
                    return;
                };
                let print = Print::of(key.fingerprint);
                let slot = Slot::new(print, key.rule, limit, cell);
                // Another band of this request may have moved it meanwhile.
                let place = place
                    .filter(|place| shard.holds(*place, print))
                    .or_else(|| shard.find(print));
                match place {
                    Some(place) => shard.set(place, slot),
                    None => table.insert(shard, slot, now),
                }
            }
            (Guard::Logs(shard), Assessed::Log(assessment)) => {
                if let Some(log) = shard.get_mut(key.fingerprint) {
                    log.correct(assessment);
                    if assessment.charges {
                        log.charge(limit, assessment);
                    }
                    return;
                }
                if !assessment.charges {
                    return;
                }
                if shard.is_full() && table.retention == Retention::UntilFull {
                    table.shrink(shard.sweep(now));
                }
                if !table.try_grow() && !shard.evict(now) {
                    table.live.fetch_add(1, Ordering::Relaxed);
                }
                shard
                    .insert(key.fingerprint, key.rule, limit)
                    .charge(limit, assessment);
            }
            _ => {}
        }
    }

    /// Gives units back.
    fn refund(&mut self, table: &Table, key: &Key, limit: &Limit, now: Timestamp, units: u64) {
        match self {
            Guard::Cells(shard) => {
                let print = Print::of(key.fingerprint);
                let Some(place) = shard.find(print) else {
                    return;
                };
                let cell = shard.slot(place).cell();
                match cell.and_then(|cell| Cell::refund(limit, cell, now, units)) {
                    Some(cell) => shard.set(place, Slot::new(print, key.rule, limit, &cell)),
                    None => {
                        self.remove(table, key);
                    }
                }
            }
            Guard::Logs(shard) => {
                if let Some(log) = shard.get_mut(key.fingerprint) {
                    log.refund(limit, now, units);
                }
            }
        }
    }

    /// Forgets a key; says whether it was there.
    fn remove(&mut self, table: &Table, key: &Key) -> bool {
        let gone = match self {
            Guard::Cells(shard) => shard.remove(Print::of(key.fingerprint)),
            Guard::Logs(shard) => shard.remove(key.fingerprint),
        };
        table.shrink(usize::from(gone));
        gone
    }
}

/// The shards of one request, locked.
pub(super) struct Held<'t> {
    table: &'t Table,
    guards: SmallVec<[(Lock, Guard<'t>); 2]>,
}

impl<'t> Held<'t> {
    /// Judges a key as it stands.
    pub(super) fn assess(
        &mut self,
        key: &Key,
        limit: &Limit,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> Assessed {
        self.guard(key).assess(key, limit, now, cost, mode)
    }

    /// Writes what must be written though nothing is charged.
    pub(super) fn correct(&mut self, key: &Key, limit: &Limit, assessed: &Assessed) {
        self.guard(key).correct(key, limit, assessed);
    }

    /// Writes the charge of an assessment that passed.
    pub(super) fn charge(&mut self, key: &Key, limit: &Limit, now: Timestamp, assessed: &Assessed) {
        let table = self.table;
        self.guard(key).charge(table, key, limit, now, assessed);
    }

    /// Gives units back.
    pub(super) fn refund(&mut self, key: &Key, limit: &Limit, now: Timestamp, units: u64) {
        let table = self.table;
        self.guard(key).refund(table, key, limit, now, units);
    }

    /// Forgets a key; says whether it was there.
    pub(super) fn remove(&mut self, key: &Key) -> bool {
        let table = self.table;
        self.guard(key).remove(table, key)
    }

    fn guard(&mut self, key: &Key) -> &mut Guard<'t> {
        let mut guards = self.guards.iter_mut();
        let found = guards.find(|(held, _)| *held == key.lock);
        &mut found.expect("every key's lock is held").1
    }
}
