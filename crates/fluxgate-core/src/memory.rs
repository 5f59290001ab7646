//! The embedded store: bounded, shared by threads, and without identities.
//!
//! A key is stored as a secret fingerprint: 54 bits next to the state, and up to nine by
//! its shard. A line of two keys has its own lock. A request locks all its keys, in one
//! order, decides, writes and unlocks, so other threads see all of its effects or none.

mod counters;
mod entry;
mod evict;
mod fast;
mod handle;
mod holds;
mod line;
mod list;
mod locked;
mod overflow;
mod shard;
mod shares;
mod table;

use smallvec::{SmallVec, smallvec};

use crate::algorithm::{Charged, Mode, Verdict};
use crate::band::Band;
use crate::clock::{Clock, SystemClock};
use crate::hold::{HoldId, Settled, Settlement};
use crate::key::{RuleNumber, Subject};
use crate::store::{
    self, Checks, Counters as _, Group, KeptReservation, LocalStore, ReservedCharge, Store,
    StoreError, Verdicts,
};
use crate::time::{Micros, Timestamp};
use entry::Key;
pub(crate) use handle::KeyHandle;
use holds::Holds;
use locked::LockedKeys;
use table::Table;
pub use table::{DEFAULT_MAX_KEYS, DEFAULT_MAX_LOG_EVENTS, Retention};

/// The memory of this process.
///
/// The number of counters is bounded: 1,000,000 by default ([`MemoryStore::with_max_keys`]). A
/// key has one counter for each quota or band. At the bound a new counter takes the place of
/// another: of one whose quota is full again, which loses nothing, or else of one that is
/// nearest to full. New keys of a rule that has more than its share evict keys of that rule.
///
/// ```
/// use fluxgate_core::{KeyedLimiter, MemoryStore, Quota};
///
/// let store = MemoryStore::with_max_keys(100_000);
/// let limiter = KeyedLimiter::with_store(Quota::per_second(10), store);
/// assert!(limiter.check("ann").is_ok());
/// assert_eq!(limiter.store().len(), 1);
/// ```
#[derive(Debug)]
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    table: Table,
    holds: Holds,
    reservations: Holds,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_max_keys(DEFAULT_MAX_KEYS)
    }
}

impl MemoryStore {
    /// Creates a store on the system's clock that keeps at most `max_keys` counters.
    pub fn with_max_keys(max_keys: usize) -> Self {
        Self::new(SystemClock::default(), max_keys, Retention::UntilFull)
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Creates a store on any clock, such as a [`ManualClock`](crate::ManualClock) in tests.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use fluxgate_core::{KeyedLimiter, ManualClock, MemoryStore, Quota};
    ///
    /// let clock = ManualClock::default();
    /// let store = MemoryStore::with_clock(clock.clone());
    /// let limiter = KeyedLimiter::with_store(Quota::per_minute(1), store);
    /// assert!(limiter.check("ann").is_ok());
    /// assert!(limiter.check("ann").is_err());
    /// clock.advance(Duration::from_secs(60));
    /// assert!(limiter.check("ann").is_ok());
    /// ```
    pub fn with_clock(clock: C) -> Self {
        Self::new(clock, DEFAULT_MAX_KEYS, Retention::UntilFull)
    }

    /// Sets how many counters the store keeps at most. Call it before the store is used: it
    /// starts with none.
    #[must_use]
    pub fn max_keys(self, max_keys: usize) -> Self {
        let max_log_events = self.table.max_log_events;
        Self::new(self.clock, max_keys, Retention::UntilFull).max_log_events(max_log_events)
    }

    /// Creates a store on any clock, with its own bound and retention.
    pub fn new(clock: C, max_keys: usize, retention: Retention) -> Self {
        Self {
            clock,
            table: Table::new(max_keys, retention),
            holds: Holds::new(),
            reservations: Holds::new(),
        }
    }

    /// Sets the bound on the events of all sliding logs and the holds that have slots
    /// together.
    ///
    /// At the bound a log merges the events of each eighth of its window into one, so that
    /// it has at most nine: its units then return up to an eighth of the window late, never
    /// early. Slots are merged in the same way, and are then free when the last of them ends.
    #[must_use]
    pub fn max_log_events(mut self, max_log_events: usize) -> Self {
        self.table.max_log_events = max_log_events;
        self
    }

    /// Returns the number of events of all sliding logs and of holds that have slots.
    pub fn log_events(&self) -> usize {
        self.table.items.total()
    }

    /// Returns the number of counters, including those whose quota is full again.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes `cost` units of a limit that belongs to no rule, for any key.
    #[inline]
    pub(crate) fn take(&self, key: &[u8], band: &Band, cost: u64) -> Verdict {
        let hash = self.table.hash(key);
        let key = self.table.key(hash, RuleNumber::NONE, band);
        self.table.take(&key, band, self.clock.now(), cost)
    }

    /// Returns a handle to a limit that belongs to no rule, for any key.
    pub(crate) fn handle(&self, key: &[u8], band: &Band) -> KeyHandle {
        let hash = self.table.hash(key);
        let key = self.table.key(hash, RuleNumber::NONE, band);
        KeyHandle::new(&self.table, key, band)
    }

    /// Takes `cost` units like [`MemoryStore::take`], by a handle of this store. Passes
    /// the verdict to `then`.
    #[inline(always)]
    pub(crate) fn take_by<R>(
        &self,
        handle: &KeyHandle,
        cost: u64,
        then: impl Fn(&Verdict) -> R,
    ) -> R {
        handle.take(&self.table, &self.clock, cost, then)
    }

    /// Refunds units like [`Store::refund`].
    pub(crate) fn refund_now(&self, subject: Subject<'_>, bands: &[Band], units: u64) -> Verdicts {
        let keys = self.keys_of(subject, bands);
        let mut locked = LockedKeys::new(&self.table, &keys, self.clock.now());
        let verdicts = bands.iter().enumerate().map(|(at, band)| {
            locked.refund(at, band, units);
            *locked.assess(at, band, 0, Mode::Peek).verdict()
        });
        verdicts.collect()
    }

    /// Cancels a charge like [`Store::cancel`].
    pub(crate) fn cancel_now(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) {
        let keys = self.keys_of(subject, bands);
        let mut locked = LockedKeys::new(&self.table, &keys, self.clock.now());
        for (at, (band, charged)) in bands.iter().zip(charged).enumerate() {
            locked.cancel(at, band, units, charged.mark(band.limit()));
        }
    }

    /// Deletes bands like [`Store::reset`].
    pub(crate) fn reset_now(&self, subject: Subject<'_>, bands: &[Band]) -> u64 {
        let keys = self.keys_of(subject, bands);
        let mut locked = LockedKeys::new(&self.table, &keys, self.clock.now());
        (0..keys.len()).map(|at| u64::from(locked.remove(at))).sum()
    }

    /// Settles a hold at the instant `now`.
    pub fn settle_at(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
        now: Timestamp,
    ) -> Option<Settled> {
        self.holds.settle(&self.table, hold, settlement, now)
    }

    /// Returns whether a hold has not ended at the instant `now`.
    pub fn is_held_at(&self, hold: HoldId, now: Timestamp) -> bool {
        self.holds.is_held(&self.table, hold, now)
    }

    /// Forgets a hold: its charges are final, and its slots are free when they end.
    pub fn forget_hold(&self, hold: HoldId) {
        self.holds.remove(hold);
    }

    /// Returns the number of holds, including those that have expired and are not forgotten
    /// yet.
    pub fn holds(&self) -> usize {
        self.holds.len()
    }

    /// Decides checks at the instant `now`.
    pub fn decide_at(&self, checks: &Checks<'_>, now: Timestamp) -> Verdicts {
        let mut verdicts = Verdicts::new();
        self.decide_into(checks, now, &mut verdicts);
        verdicts
    }

    fn decide_into(&self, checks: &Checks<'_>, now: Timestamp, verdicts: &mut Verdicts) {
        let list = checks.list();
        if let ([check], Mode::Take, None, false) =
            (list, checks.mode(), checks.hold(), checks.charges_always())
        {
            let Subject { rule, bytes } = check.subject;
            let key = self.table.key(self.table.hash(bytes), rule, check.band);
            verdicts.push(self.table.take(&key, check.band, now, check.cost));
            return;
        }
        let mut keys: SmallVec<[Key; 4]> = smallvec![];
        self.add_keys(checks, &mut keys);
        let is_plain = !checks.charges_always();
        if is_plain && list.iter().all(|check| check.group == Group::ENFORCED) {
            let mode = checks.mode();
            let decided = self.table.decide_in_lines(&keys, list, now, mode, verdicts);
            if decided.is_some() {
                self.holds
                    .record(&self.table, (&keys, &[]), checks, verdicts, now);
                return;
            }
            verdicts.clear();
        }
        let log_marks = {
            let mut locked = LockedKeys::new(&self.table, &keys, now).for_hold(checks.hold());
            store::decide(&mut locked, checks, verdicts);
            std::mem::take(&mut locked.log_marks)
        };
        self.holds
            .record(&self.table, (&keys, &log_marks), checks, verdicts, now);
    }

    /// Adds the keys of all checks. A subject is hashed once for all its bands.
    fn add_keys(&self, checks: &Checks<'_>, keys: &mut SmallVec<[Key; 4]>) {
        let mut last: Option<(Subject<'_>, u64)> = None;
        for check in checks.list() {
            let subject = check.subject;
            let hash = match last {
                Some((known, hash)) if std::ptr::eq(known.bytes, subject.bytes) => hash,
                _ => self.table.hash(subject.bytes),
            };
            last = Some((subject, hash));
            keys.push(self.table.key(hash, subject.rule, check.band));
        }
    }

    fn keys_of(&self, subject: Subject<'_>, bands: &[Band]) -> SmallVec<[Key; 4]> {
        let hash = self.table.hash(subject.bytes);
        bands
            .iter()
            .map(|band| self.table.key(hash, subject.rule, band))
            .collect()
    }
}

impl<C: Clock> LocalStore for MemoryStore<C> {
    fn decide_now(&self, checks: &Checks<'_>) -> Verdicts {
        self.decide_at(checks, self.clock.now())
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    fn time(&self) -> Timestamp {
        self.clock.now()
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        Ok(self.decide_now(checks))
    }

    fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
        self.decide_into(checks, self.clock.now(), verdicts);
        true
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> Result<Verdicts, StoreError> {
        Ok(self.refund_now(subject, bands, units))
    }

    async fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> Result<(), StoreError> {
        self.cancel_now(subject, bands, units, charged);
        Ok(())
    }

    async fn keep_reservation(
        &self,
        reservation: &KeptReservation<'_>,
    ) -> Result<bool, StoreError> {
        let keys_of = |charge: &ReservedCharge<'_>| self.keys_of(charge.subject, charge.bands);
        let now = self.clock.now();
        self.reservations
            .keep(&self.table, reservation, keys_of, now);
        Ok(true)
    }

    async fn cancel_reservation(&self, id: HoldId) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let Some(record) = self.reservations.take(id, now) else {
            return Ok(false);
        };
        // The slots are free; what the rates charged is cancelled below. If the hold has been
        // settled, that has decided what its units are.
        if record.is_held && self.settle_at(id, Settlement::Cancelled, now).is_none() {
            return Ok(false);
        }
        holds::cancel(&self.table, &record, now);
        Ok(true)
    }

    async fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        Ok(self.settle_at(hold, settlement, self.clock.now()))
    }

    async fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        let now = self.clock.now();
        let renew =
            |(hold, span): &(HoldId, Micros)| self.holds.renew(&self.table, *hold, *span, now);
        Ok(holds.iter().map(renew).collect())
    }

    async fn reset(&self, subject: Subject<'_>, bands: &[Band]) -> Result<u64, StoreError> {
        Ok(self.reset_now(subject, bands))
    }

    async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
        Ok(self.table.remove_rule(rule.rule))
    }
}
