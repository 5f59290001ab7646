//! All leases of a process, by band and identity.
//!
//! The table is cut into shards with a lock each. All bands of one rule and identity are in
//! one shard, so most decisions take one lock. A request with several rules takes the locks
//! in the order of the shards, and spends nothing before it holds all of them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use fluxgate_core::algorithm::LeaseRequest;
use fluxgate_core::key::Fingerprinter;
use fluxgate_core::lease::BandLease;
use fluxgate_core::store::{Check, Checks, Group, Subject, Verdict, Verdicts};
use smallvec::SmallVec;

use super::holder::{GrantReply, LeaseHolder, Moment};
use super::hot_keys::HotKeys;
use super::shard::{Assessment, Entry, LeaseKey, LeaseOwner, SHARDS, Shard};
use super::trace::{Event, Trace};
use crate::lock::lock;

/// The most bands with a lease in one shard. The server decides the others.
const MAX_PER_SHARD: usize = 1024;

/// A lease request on its way. Pass its outcome to [`LeaseTable::add_grant`] or
/// [`LeaseTable::record_no_answer`].
#[derive(Clone, Debug)]
pub struct PendingRequest {
    /// The band and identity whose units it requests.
    pub key: LeaseKey,
    /// The request.
    pub request: LeaseRequest,
    /// When it was sent.
    pub sent_at: u64,
}

/// A lease request that goes with a decision of the server.
#[derive(Clone, Debug)]
pub struct CheckRequest {
    /// The index of the check whose band it is for.
    pub check: usize,
    /// The request.
    pub pending: PendingRequest,
}

/// A lease request that is due without a decision.
#[derive(Clone, Debug)]
pub struct DueRequest {
    /// The owner of the units.
    pub owner: LeaseOwner,
    /// The request.
    pub pending: PendingRequest,
}

/// A request was decided by leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalDecision {
    /// Whether the keeper should call [`LeaseTable::due_requests`] to request more units.
    pub is_low: bool,
}

/// All leases of a process.
#[derive(Debug)]
pub struct LeaseTable {
    shards: Box<[Mutex<Shard>]>,
    fingerprinter: Fingerprinter,
    hot_keys: HotKeys,
    /// Bands that are low on units, for the keeper.
    low: Mutex<Vec<LeaseKey>>,
    len: AtomicUsize,
    /// The shortest span of a lease, in microseconds.
    shortest: AtomicU64,
    /// Counts refunds and resets: refusals from before one do not hold.
    generation: AtomicU64,
    units: UnitCounts,
    trace: Trace,
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
            trace: Trace::default(),
        }
    }
}

/// Returns whether leases could cover a request: it takes units at once and without a hold, and
/// all its rules lease.
pub fn is_leasable(checks: &Checks<'_>) -> bool {
    let is_leased = |check: &Check<'_>| {
        check.group == Group::ENFORCED && check.band.lease().is_some() && check.cost > 0
    };
    checks.list().iter().all(is_leased)
        && !checks.list().is_empty()
        && checks.mode().takes()
        && checks.hold().is_none()
}

impl LeaseTable {
    /// Records from now on what happens to leases, in a new file of the directory.
    #[cfg(feature = "lease-trace")]
    pub fn trace_to(&self, directory: &std::path::Path) -> std::io::Result<()> {
        self.trace.start(directory)
    }

    /// Decides a [leasable](is_leasable) request by units on lease, or refuses it as the server
    /// did shortly before. Appends its verdicts. Returns `None`, and appends nothing, if only
    /// the server can decide it.
    pub fn decide(
        &self,
        checks: &Checks<'_>,
        now: u64,
        verdicts: &mut Verdicts,
    ) -> Option<LocalDecision> {
        let now = self.moment(now);
        match checks.list() {
            [check] => self.decide_one(check, now, verdicts),
            _ => self.decide_all(checks, now, verdicts),
        }
    }

    /// Decides a request with one band, as most are.
    fn decide_one(
        &self,
        check: &Check<'_>,
        now: Moment,
        verdicts: &mut Verdicts,
    ) -> Option<LocalDecision> {
        let subject = self.fingerprinter.of(check.subject.bytes);
        let key = LeaseKey::new(subject, check.band);
        let mut shard = self.lock(key.shard());
        let Shard {
            entries, expired, ..
        } = &mut *shard;
        let entry = entries.get_mut(&key)?;
        let assessment = entry.assess(check, now, expired)?;
        let is_denied = assessment.is_refused();
        let mut decision = LocalDecision::default();
        verdicts.push(entry.decide(check, now.at, assessment, is_denied, || {
            decision.is_low = true;
            lock(&self.low).push(key);
        }));
        if !is_denied {
            let Entry { holder, owner } = &*entry;
            self.trace
                .record(owner, holder, now.at, Event::Spend(check.cost));
        }
        shard.count_decision(is_denied);
        Some(decision)
    }

    fn decide_all(
        &self,
        checks: &Checks<'_>,
        now: Moment,
        verdicts: &mut Verdicts,
    ) -> Option<LocalDecision> {
        let keys = self.keys_of(checks)?;
        let mut shards = self.lock_all(&keys);
        let mut is_denied = false;
        let mut assessments = SmallVec::<[Assessment; 4]>::new();
        for (check, key) in checks.list().iter().zip(&keys) {
            let Shard {
                entries, expired, ..
            } = shard_of(&mut shards, *key);
            let assessment = entries.get_mut(key)?.assess(check, now, expired)?;
            is_denied |= assessment.is_refused();
            assessments.push(assessment);
        }
        let mut decision = LocalDecision::default();
        for ((check, key), assessment) in checks.list().iter().zip(&keys).zip(assessments) {
            // It was there under the same lock.
            let entry = shard_of(&mut shards, *key).entries.get_mut(key)?;
            verdicts.push(entry.decide(check, now.at, assessment, is_denied, || {
                decision.is_low = true;
                lock(&self.low).push(*key);
            }));
            if !is_denied {
                let Entry { holder, owner } = &*entry;
                self.trace
                    .record(owner, holder, now.at, Event::Spend(check.cost));
            }
        }
        if let Some((_, shard)) = shards.first_mut() {
            shard.count_decision(is_denied);
        }
        Some(decision)
    }

    /// Returns the lease requests to send with a [leasable](is_leasable) request that the server
    /// decides, in the order of its checks.
    pub fn requests_with(
        &self,
        checks: &Checks<'_>,
        now: u64,
    ) -> impl Iterator<Item = CheckRequest> + use<> {
        let mut requests = SmallVec::<[CheckRequest; 2]>::new();
        let keys = self.keys_of(checks).unwrap_or_default();
        for (at, (check, key)) in checks.list().iter().zip(keys).enumerate() {
            if let Some(request) = self.request_with(check, key, now) {
                requests.push(CheckRequest {
                    check: at,
                    pending: self.pending(key, request, now),
                });
            }
        }
        requests.into_iter()
    }

    fn request_with(&self, check: &Check<'_>, key: LeaseKey, now: u64) -> Option<LeaseRequest> {
        let lease = check.band.lease()?;
        let mut locked = self.lock(key.shard());
        let shard = &mut *locked;
        if let Some(Entry { holder, owner }) = shard.entries.get_mut(&key) {
            if !owner.band().has_same_lease(check.band) {
                return None;
            }
            shard.expired += holder.expire(now);
            if holder.is_busy() {
                return None;
            }
            let request = holder.request(lease, check.cost, now)?;
            self.trace.record(owner, holder, now, Event::Ask(&request));
            return Some(request);
        }
        let span = lease.span().get();
        let is_hot = self.hot_keys.count(key.hash(), now / span);
        if !is_hot || shard.entries.len() >= MAX_PER_SHARD {
            return None;
        }
        let mut holder = LeaseHolder::new(lease, now);
        let request = holder.request(lease, check.cost, now);
        let owner = Box::new(LeaseOwner::of(check));
        if let Some(request) = &request {
            self.trace.record(&owner, &holder, now, Event::Ask(request));
        }
        shard.entries.insert(key, Entry { holder, owner });
        self.len.fetch_add(1, Ordering::Relaxed);
        self.shortest.fetch_min(span, Ordering::Relaxed);
        request
    }

    /// Returns the requests of bands that are low on units. A `full_round` also returns idle
    /// units, renews grants that are about to end, and forgets leases that are no longer used.
    pub fn due_requests(&self, now: u64, full_round: bool) -> Vec<DueRequest> {
        let mut due = Vec::new();
        let low = std::mem::take(&mut *lock(&self.low));
        for key in low {
            let mut shard = self.lock(key.shard());
            let Some(Entry { holder, owner }) = shard.entries.get_mut(&key) else {
                continue;
            };
            let Some(lease) = owner.band().lease() else {
                continue;
            };
            if holder.take_queued()
                && let Some(request) = holder.request(lease, 0, now)
            {
                self.trace.record(owner, holder, now, Event::Ask(&request));
                due.push(self.due(key, owner, request, now));
            }
        }
        if !full_round {
            return due;
        }
        for shard in 0..SHARDS {
            let mut shard = self.lock(shard);
            let Shard {
                entries, expired, ..
            } = &mut *shard;
            let before = entries.len();
            entries.retain(|key, Entry { holder, owner }| {
                let Some(lease) = owner.band().lease() else {
                    return false;
                };
                *expired += holder.expire(now);
                if let Some(request) = holder.due_request(lease, now) {
                    self.trace.record(owner, holder, now, Event::Ask(&request));
                    due.push(self.due(*key, owner, request, now));
                }
                !holder.is_forgettable(lease, now)
            });
            self.len
                .fetch_sub(before - entries.len(), Ordering::Relaxed);
        }
        due
    }

    /// Returns requests that return all units, except those of leases with a request on its
    /// way.
    pub fn return_all(&self, now: u64) -> Vec<DueRequest> {
        let mut all = Vec::new();
        // The keeper requests no more.
        lock(&self.low).clear();
        for shard in 0..SHARDS {
            let mut shard = self.lock(shard);
            let Shard {
                entries, expired, ..
            } = &mut *shard;
            for (key, Entry { holder, owner }) in entries {
                if holder.is_requesting() {
                    continue;
                }
                *expired += holder.expire(now);
                if holder.units() > 0 {
                    let request = holder.return_all(now);
                    self.trace.record(owner, holder, now, Event::Ask(&request));
                    all.push(self.due(*key, owner, request, now));
                }
            }
        }
        all
    }

    /// Returns whether any lease request is on its way.
    pub fn is_requesting(&self) -> bool {
        (0..SHARDS).any(|shard| {
            let shard = self.lock(shard);
            let mut entries = shard.entries.values();
            entries.any(|entry| entry.holder.is_requesting())
        })
    }

    /// Adds what the server granted.
    pub fn add_grant(
        &self,
        lease: &BandLease,
        pending: &PendingRequest,
        reply: &GrantReply,
        now: u64,
    ) {
        let GrantReply { grant, balance } = reply;
        self.units.add_granted(grant.units);
        let mut shard = self.lock(pending.key.shard());
        let Some(Entry { holder, owner }) = shard.entries.get_mut(&pending.key) else {
            return;
        };
        let now = self.moment(now);
        let is_at_limit = holder.is_at_limit(lease, now);
        holder.add_grant(lease, pending.sent_at, reply, now.at);
        self.trace
            .record(owner, holder, now.at, Event::Receive(reply));
        let left = u64::from(grant.units) + u64::from(balance.remaining);
        if is_at_limit && left < pending.request.want.into() {
            holder.refuse_when_spent(lease, balance, now);
        }
    }

    /// Records that a lease request got no answer.
    pub fn record_no_answer(&self, key: LeaseKey) {
        let mut shard = self.lock(key.shard());
        if let Some(Entry { holder, owner }) = shard.entries.get_mut(&key) {
            holder.record_no_answer();
            self.trace.record(owner, holder, 0, Event::GiveUp);
        }
    }

    /// Records what the server decided, and adds units on lease to the verdicts. Denials of the
    /// `refused` bands, which were granted nothing, are repeated here for a while.
    pub fn record_decision(
        &self,
        checks: &Checks<'_>,
        refused: &[LeaseKey],
        verdicts: &mut [Verdict],
        now: u64,
    ) {
        let Some(keys) = self.keys_of(checks) else {
            return;
        };
        let now = self.moment(now);
        let passes = verdicts.iter().all(Verdict::passes);
        for ((check, key), verdict) in checks.list().iter().zip(keys).zip(verdicts) {
            let mut locked = self.lock(key.shard());
            let shard = &mut *locked;
            let Some(Entry { holder, .. }) = shard.entries.get_mut(&key) else {
                continue;
            };
            shard.expired += holder.expire(now.at);
            if passes {
                holder.record_use(check.cost, now.at);
            }
            match check.band.lease() {
                _ if verdict.passes() => {}
                Some(lease) if refused.contains(&key) => {
                    holder.record_refusal(lease, check.cost, verdict.retry_after, now);
                }
                // Even if another lease request is on its way: its grant will be short, too.
                _ => holder.record_denial(now),
            }
            holder.add_units(verdict, now.at);
        }
    }

    /// Forgets all refusals, because a refund or a reset may have returned units.
    pub fn forget_refusals(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns whether there is no lease.
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Returns the shortest span of a lease, in microseconds; `u64::MAX` if there is none.
    pub fn shortest_span(&self) -> u64 {
        self.shortest.load(Ordering::Relaxed)
    }

    /// Recomputes the shortest span, since leases may have been forgotten. A lease that is
    /// created at the same time may be missed until the next call.
    pub fn update_shortest_span(&self) {
        let shortest_of = |shard| {
            let shard = self.lock(shard);
            let entries = shard.entries.values();
            entries
                .filter_map(|entry| Some(entry.owner.band().lease()?.span().get()))
                .min()
        };
        let shortest = (0..SHARDS).filter_map(shortest_of).min();
        self.shortest
            .store(shortest.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns what has happened to leases so far.
    pub fn counts(&self) -> LeaseCounts {
        let mut counts = self.units.counts();
        for shard in 0..SHARDS {
            let shard = self.lock(shard);
            counts.allowed += shard.allowed;
            counts.denied += shard.denied;
            counts.expired += shard.expired;
            for entry in shard.entries.values() {
                counts.on_lease += u64::from(entry.holder.units());
            }
        }
        counts
    }

    fn pending(&self, key: LeaseKey, request: LeaseRequest, sent_at: u64) -> PendingRequest {
        self.units.add_request(&request);
        PendingRequest {
            key,
            request,
            sent_at,
        }
    }

    fn due(
        &self,
        key: LeaseKey,
        owner: &LeaseOwner,
        request: LeaseRequest,
        now: u64,
    ) -> DueRequest {
        DueRequest {
            owner: owner.clone(),
            pending: self.pending(key, request, now),
        }
    }

    fn moment(&self, now: u64) -> Moment {
        Moment {
            at: now,
            generation: self.generation.load(Ordering::Acquire),
        }
    }

    /// Returns the keys of all checks; `None` if two have the same counter, whose costs the
    /// server adds up.
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
        lock(&self.shards[shard])
    }

    /// Locks the shards of all keys, in the order of the shards.
    fn lock_all(&self, keys: &[LeaseKey]) -> SmallVec<[(usize, MutexGuard<'_, Shard>); 2]> {
        let mut shards: SmallVec<[usize; 4]> = keys.iter().map(|key| key.shard()).collect();
        shards.sort_unstable();
        shards.dedup();
        let locked = shards.into_iter();
        locked.map(|shard| (shard, self.lock(shard))).collect()
    }
}

/// Returns the locked shard of a key.
fn shard_of<'s>(shards: &'s mut [(usize, MutexGuard<'_, Shard>)], key: LeaseKey) -> &'s mut Shard {
    let at = shards.iter().position(|(shard, _)| *shard == key.shard());
    // All shards of the keys are locked.
    &mut shards[at.unwrap_or_default()].1
}

/// What has happened to leases since the store was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseCounts {
    /// Requests allowed by units on lease.
    pub allowed: u64,
    /// Requests denied without a call to the server, shortly after it denied one.
    pub denied: u64,
    /// Lease requests sent to the server, including those that only return units.
    pub requests: u64,
    /// Units granted.
    pub granted: u64,
    /// Units returned.
    pub returned: u64,
    /// Units whose lease ended before they were spent.
    pub expired: u64,
    /// Units on lease now.
    pub on_lease: u64,
}

/// The counts that are not kept by shard.
#[derive(Debug, Default)]
pub(super) struct UnitCounts {
    requests: AtomicU64,
    granted: AtomicU64,
    returned: AtomicU64,
}

impl UnitCounts {
    pub(super) fn add_request(&self, request: &LeaseRequest) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let reports = request.reports().iter();
        let returned = reports.map(|report| u64::from(report.returned)).sum();
        self.returned.fetch_add(returned, Ordering::Relaxed);
    }

    pub(super) fn add_granted(&self, units: u32) {
        self.granted.fetch_add(units.into(), Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> LeaseCounts {
        LeaseCounts {
            requests: self.requests.load(Ordering::Relaxed),
            granted: self.granted.load(Ordering::Relaxed),
            returned: self.returned.load(Ordering::Relaxed),
            ..LeaseCounts::default()
        }
    }
}
