//! All leases of this process, by band and identity.
//!
//! The table is cut into shards with a lock each. All bands of one rule and identity are in
//! one shard, so most decisions take one lock. A request with several rules takes the locks
//! in the order of the shards, and spends nothing before it holds all of them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fluxgate_core::internals::algorithm::Ask;
use fluxgate_core::internals::{BandLease, Fingerprinter};
use fluxgate_core::store::{Check, Checks, Group, Retry, Subject, Verdict, Verdicts};
use smallvec::SmallVec;

use super::hot_keys::HotKeys;
use super::kept_lease::KeptLease;
use super::lease_counts::{LeaseCounts, UnitCounts};
use super::lease_shard::{Entry, SHARDS, Shard};
pub(crate) use super::lease_shard::{LeaseKey, Owner};
use crate::codec::Granted;

/// The most bands with a lease in one shard. Others are decided by the store.
const MAX_PER_SHARD: usize = 1024;

/// An ask on its way, which must be answered with [`LeaseTable::granted`] or
/// [`LeaseTable::unanswered`].
#[derive(Clone, Debug)]
pub(crate) struct PendingAsk {
    pub(crate) key: LeaseKey,
    pub(crate) ask: Ask,
    pub(crate) asked_at: u64,
}

/// All leases of this process.
#[derive(Debug)]
pub(crate) struct LeaseTable {
    shards: Box<[Mutex<Shard>]>,
    fingerprinter: Fingerprinter,
    hot_keys: HotKeys,
    /// Bands that are low on units, for the keeper.
    low: Mutex<Vec<LeaseKey>>,
    len: AtomicUsize,
    /// The shortest life of a lease, in microseconds.
    shortest: AtomicU64,
    /// Raised when units may have been returned, so that refusals do not hold.
    generation: AtomicU64,
    units: UnitCounts,
}

impl Default for LeaseTable {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            fingerprinter: Fingerprinter::random(),
            hot_keys: HotKeys::default(),
            low: Mutex::default(),
            len: AtomicUsize::new(0),
            shortest: AtomicU64::new(u64::MAX),
            generation: AtomicU64::new(0),
            units: UnitCounts::default(),
        }
    }
}

/// Returns whether units on lease could decide a request: it is charged at once and without a
/// hold, and all its rules lease.
pub(crate) fn can_cover(checks: &Checks<'_>) -> bool {
    let is_leased = |check: &Check<'_>| {
        check.group == Group::ENFORCED && check.band.lease().is_some() && check.cost > 0
    };
    checks.list().iter().all(is_leased)
        && !checks.list().is_empty()
        && checks.mode().takes()
        && checks.hold().is_none()
}

impl LeaseTable {
    /// Decides a request by units on lease, or refuses it as the store did shortly before.
    /// Returns false if only the store can decide it. Sets `is_low` if the keeper has
    /// something to do.
    pub(crate) fn decide(
        &self,
        checks: &Checks<'_>,
        now: u64,
        verdicts: &mut Verdicts,
        is_low: &mut bool,
    ) -> bool {
        let generation = self.generation.load(Ordering::Acquire);
        let decided = match checks.list() {
            [check] => self.decide_one(check, (now, generation), verdicts, is_low),
            _ => self.decide_all(checks, (now, generation), verdicts, is_low),
        };
        decided.is_some()
    }

    /// Decides a request with one band, as most are.
    fn decide_one(
        &self,
        check: &Check<'_>,
        now: (u64, u64),
        verdicts: &mut Verdicts,
        is_low: &mut bool,
    ) -> Option<()> {
        let subject = self.fingerprinter.of(check.subject.bytes);
        let key = LeaseKey::new(subject, check.band);
        let mut shard = self.lock(key.shard());
        let Shard {
            entries, expired, ..
        } = &mut *shard;
        let entry = entries.get_mut(&key)?;
        let refusal = entry.assess(check, now, expired)?;
        let is_denied = refusal.is_some();
        verdicts.push(entry.decide(check, now.0, refusal, is_denied, || {
            *is_low = true;
            self.lock_low().push(key);
        }));
        shard.count(is_denied);
        Some(())
    }

    fn decide_all(
        &self,
        checks: &Checks<'_>,
        now: (u64, u64),
        verdicts: &mut Verdicts,
        is_low: &mut bool,
    ) -> Option<()> {
        let keys = self.keys_of(checks)?;
        let mut shards = self.lock_all(&keys);
        let mut is_denied = false;
        let mut refusals = SmallVec::<[Option<Retry>; 4]>::new();
        for (check, key) in checks.list().iter().zip(&keys) {
            let Shard {
                entries, expired, ..
            } = shard_of(&mut shards, *key);
            let refusal = entries.get_mut(key)?.assess(check, now, expired)?;
            is_denied |= refusal.is_some();
            refusals.push(refusal);
        }
        for ((check, key), refusal) in checks.list().iter().zip(&keys).zip(refusals) {
            // It was there under the same lock.
            let entry = shard_of(&mut shards, *key).entries.get_mut(key)?;
            verdicts.push(entry.decide(check, now.0, refusal, is_denied, || {
                *is_low = true;
                self.lock_low().push(*key);
            }));
        }
        if let Some((_, shard)) = shards.first_mut() {
            shard.count(is_denied);
        }
        Some(())
    }

    /// Returns the asks to send with a request that the store decides, each with the
    /// index of its check.
    pub(crate) fn asks(&self, checks: &Checks<'_>, now: u64) -> SmallVec<[(usize, PendingAsk); 2]> {
        let mut asks = SmallVec::new();
        let Some(keys) = self.keys_of(checks) else {
            return asks;
        };
        for (at, (check, key)) in checks.list().iter().zip(keys).enumerate() {
            let Some(lease) = check.band.lease() else {
                continue;
            };
            let mut shard = self.lock(key.shard());
            let shard = &mut *shard;
            let ask = match shard.entries.get_mut(&key) {
                Some(entry) if !entry.owner.band.has_same_lease(check.band) => continue,
                Some(entry) => {
                    entry.kept.available(now, &mut shard.expired);
                    if entry.kept.is_busy() {
                        None
                    } else {
                        entry.kept.ask(lease, check.cost, now)
                    }
                }
                None => {
                    let lives = now / lease.span().get();
                    let is_hot = self.hot_keys.count(key.hash(), lives);
                    if !is_hot || shard.entries.len() >= MAX_PER_SHARD {
                        continue;
                    }
                    let mut kept = KeptLease::new(lease, now);
                    let ask = kept.ask(lease, check.cost, now);
                    let owner = Box::new(Owner::of(check));
                    shard.entries.insert(key, Entry { kept, owner });
                    self.len.fetch_add(1, Ordering::Relaxed);
                    let life = lease.span().get();
                    self.shortest.fetch_min(life, Ordering::Relaxed);
                    ask
                }
            };
            if let Some(ask) = ask {
                asks.push((at, self.pending(key, ask, now)));
            }
        }
        asks
    }

    /// Returns the asks that are due without a request, and forgets leases that are not
    /// used any more. `all` includes those that are not low, idle or about to end.
    pub(crate) fn due(&self, now: u64, all: bool) -> Vec<(Owner, PendingAsk)> {
        let mut due = Vec::new();
        let low = std::mem::take(&mut *self.lock_low());
        for key in low {
            let mut shard = self.lock(key.shard());
            let Some(entry) = shard.entries.get_mut(&key) else {
                continue;
            };
            let Some(lease) = entry.owner.band.lease() else {
                continue;
            };
            if entry.kept.take_queued()
                && let Some(ask) = entry.kept.ask(lease, 0, now)
            {
                due.push((Owner::clone(&entry.owner), self.pending(key, ask, now)));
            }
        }
        if !all {
            return due;
        }
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let Shard {
                entries, expired, ..
            } = &mut *shard;
            let before = entries.len();
            entries.retain(|key, Entry { kept, owner }| {
                let Some(lease) = owner.band.lease() else {
                    return false;
                };
                kept.available(now, expired);
                if let Some(ask) = kept.due(lease, now) {
                    due.push((Owner::clone(owner), self.pending(*key, ask, now)));
                }
                !kept.is_forgettable(lease, now)
            });
            self.len
                .fetch_sub(before - entries.len(), Ordering::Relaxed);
        }
        due
    }

    /// Returns the asks that return all units. Leases with an ask on its way are left
    /// out.
    pub(crate) fn return_all(&self, now: u64) -> Vec<(Owner, PendingAsk)> {
        let mut all = Vec::new();
        // The keeper asks for no more.
        self.lock_low().clear();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let Shard {
                entries, expired, ..
            } = &mut *shard;
            for (key, Entry { kept, owner }) in entries {
                if !kept.is_asking() && kept.available(now, expired) > 0 {
                    let ask = kept.return_all(now);
                    all.push((Owner::clone(owner), self.pending(*key, ask, now)));
                }
            }
        }
        all
    }

    /// Returns whether any lease has an ask on its way.
    pub(crate) fn is_any_asking(&self) -> bool {
        let mut shards = self.shards.iter();
        shards.any(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.entries.values().any(|entry| entry.kept.is_asking())
        })
    }

    /// Adds what the store granted.
    pub(crate) fn granted(
        &self,
        lease: &BandLease,
        pending: &PendingAsk,
        granted: &Granted,
        now: u64,
    ) {
        let Granted { grant, rest } = granted;
        self.units.granted(grant.units);
        let mut shard = self.lock(pending.key.shard());
        if let Some(entry) = shard.entries.get_mut(&pending.key) {
            let kept = &mut entry.kept;
            let generation = self.generation.load(Ordering::Acquire);
            let is_at_limit = kept.is_at_limit(lease, generation, now);
            kept.granted(lease, pending.asked_at, grant, rest, now);
            let left = u64::from(grant.units) + u64::from(rest.remaining);
            if is_at_limit && left < pending.ask.want.into() {
                kept.pause(lease, rest, generation, now);
            }
        }
    }

    /// Notes that an ask got no answer.
    pub(crate) fn unanswered(&self, key: LeaseKey) {
        let mut shard = self.lock(key.shard());
        if let Some(entry) = shard.entries.get_mut(&key) {
            entry.kept.unanswered();
        }
    }

    /// Notes what the store decided. Denials of a band that was granted nothing are repeated
    /// for a while, and units on lease here are left, too.
    pub(crate) fn decided(
        &self,
        checks: &Checks<'_>,
        refused: &[LeaseKey],
        verdicts: &mut [Verdict],
        now: u64,
    ) {
        let Some(keys) = self.keys_of(checks) else {
            return;
        };
        let generation = self.generation.load(Ordering::Acquire);
        let passes = verdicts.iter().all(Verdict::passes);
        for ((check, key), verdict) in checks.list().iter().zip(keys).zip(verdicts) {
            let mut shard = self.lock(key.shard());
            let shard = &mut *shard;
            let Some(entry) = shard.entries.get_mut(&key) else {
                continue;
            };
            entry.kept.available(now, &mut shard.expired);
            if passes {
                entry.kept.used(check.cost, now);
            }
            match check.band.lease() {
                _ if verdict.passes() => {}
                Some(lease) if refused.contains(&key) => {
                    let retry = verdict.retry_after;
                    entry.kept.refuse(lease, check.cost, retry, generation, now);
                }
                // Also if another request is asking: its answer is short, too.
                _ => entry.kept.denied(generation, now),
            }
            entry.kept.add_rest(verdict, now);
        }
    }

    /// Lets no refusal hold any more: units may have been returned.
    pub(crate) fn forget_refusals(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns whether there is any lease.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Returns the shortest life of a lease, in microseconds; the maximum if there is none.
    pub(crate) fn shortest(&self) -> u64 {
        self.shortest.load(Ordering::Relaxed)
    }

    /// Looks for the shortest life of a lease again, when some may have been forgotten. One
    /// that is created at the same time may be missed until the next round.
    pub(crate) fn update_shortest(&self) {
        let shortest_of = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let spans = shard.entries.values();
            let spans = spans.filter_map(|entry| Some(entry.owner.band.lease()?.span().get()));
            spans.min()
        };
        let shortest = self.shards.iter().filter_map(shortest_of).min();
        let shortest = shortest.unwrap_or(u64::MAX);
        self.shortest.store(shortest, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> LeaseCounts {
        let mut counts = self.units.counts();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            counts.allowed += shard.allowed;
            counts.denied += shard.denied;
            counts.expired += shard.expired;
            for entry in shard.entries.values() {
                counts.on_lease += u64::from(entry.kept.on_lease());
            }
        }
        counts
    }

    fn pending(&self, key: LeaseKey, ask: Ask, asked_at: u64) -> PendingAsk {
        self.units.asked(&ask);
        PendingAsk { key, ask, asked_at }
    }

    /// Returns the keys of all checks; `None` if two have the same counter, whose costs the
    /// store adds up.
    fn keys_of(&self, checks: &Checks<'_>) -> Option<SmallVec<[LeaseKey; 4]>> {
        let mut keys = SmallVec::<[LeaseKey; 4]>::new();
        let mut last: Option<(Subject<'_>, u64)> = None;
        for check in checks.list() {
            let subject = match last {
                Some((subject, fingerprint)) if subject == check.subject => fingerprint,
                _ => self.fingerprinter.of(check.subject.bytes),
            };
            last = Some((check.subject, subject));
            let key = LeaseKey::new(subject, check.band);
            if keys.contains(&key) {
                return None;
            }
            keys.push(key);
        }
        Some(keys)
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        // Nothing can panic while it is held.
        let shard = self.shards[shard].lock();
        shard.unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the shards of all keys, in the order of the shards.
    fn lock_all(&self, keys: &[LeaseKey]) -> SmallVec<[(usize, MutexGuard<'_, Shard>); 2]> {
        let mut shards: SmallVec<[usize; 4]> = keys.iter().map(|key| key.shard()).collect();
        shards.sort_unstable();
        shards.dedup();
        let locked = shards.into_iter();
        locked.map(|shard| (shard, self.lock(shard))).collect()
    }

    fn lock_low(&self) -> MutexGuard<'_, Vec<LeaseKey>> {
        self.low.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the locked shard of a key.
fn shard_of<'s>(shards: &'s mut [(usize, MutexGuard<'_, Shard>)], key: LeaseKey) -> &'s mut Shard {
    let at = shards.iter().position(|(shard, _)| *shard == key.shard());
    // All shards of the keys are locked.
    &mut shards[at.unwrap_or_default()].1
}
