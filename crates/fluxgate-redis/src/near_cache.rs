//! Remembers denials, so that not every request of a client that keeps exceeding a limit
//! reaches the server.
//!
//! An entry is the script's answer to a denied request. A request for the same bands is
//! evaluated against that answer again, at the current time by the monotonic clock. While it
//! is denied, the server would deny it, too, since other processes can only have taken more
//! units. If this process has taken so many that the numbers or the denying bands would
//! differ, the server decides. An entry lasts at most a second, and until the next refund or
//! reset made here. A changed rule has other bands, and so other entries.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::random::KeyedHash;
use fluxgate_core::store::{Check, Checks, Group, Retry, Verdict, Verdicts};
use fluxgate_core::{Algorithm, Limit};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::codec::Answer;
use crate::lock::lock;

/// How long a denial is remembered at most.
const MAX_AGE: Duration = Duration::from_secs(1);
/// How many denials are remembered; a new one replaces an old one.
const ENTRIES: usize = 4096;

/// The denials that this process remembers.
#[derive(Debug)]
pub(crate) struct NearCache {
    entries: Box<[Mutex<Option<Box<Entry>>>]>,
    hasher: KeyedHash,
    charges: ChargeCounts,
    /// Counts refunds and resets made here.
    generation: AtomicU64,
    start: Instant,
    /// When the last entry expires, in microseconds after the start.
    expires: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    /// Identifies the bands.
    fingerprint: u64,
    limits: SmallVec<[Limit; 1]>,
    costs: SmallVec<[u64; 4]>,
    /// What this process had charged to each band when the request came.
    charged: SmallVec<[u64; 4]>,
    answer: Answer,
    began_at: Instant,
    until: Instant,
    generation: u64,
}

/// A request as the cache identifies it, to find its answer or to insert it.
#[derive(Debug)]
pub(crate) struct CacheLookup {
    index: usize,
    fingerprint: u64,
    /// For each band, the index of its counter and its count.
    charged: SmallVec<[(usize, u64); 4]>,
    began_at: Instant,
    generation: u64,
}

/// Which answers a lookup finds and inserts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LookupScope {
    /// Denials only.
    #[default]
    Denials,
    /// All answers, because the request is denied whatever these bands answer.
    All,
}

impl Default for NearCache {
    fn default() -> Self {
        Self {
            entries: (0..ENTRIES).map(|_| Mutex::default()).collect(),
            hasher: KeyedHash::random(),
            charges: ChargeCounts::default(),
            generation: AtomicU64::new(0),
            start: Instant::now(),
            expires: AtomicU64::new(0),
        }
    }
}

impl NearCache {
    /// Returns whether all entries have expired, so that no lookup is needed.
    pub(crate) fn has_expired(&self, now: Instant) -> bool {
        self.micros_at(now) >= self.expires.load(Ordering::Acquire)
    }

    fn micros_at(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(self.start);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the lookup of a request that came at `began_at`.
    pub(crate) fn lookup(&self, checks: &Checks<'_>, began_at: Instant) -> CacheLookup {
        // Keyed, so that clients cannot cause collisions.
        let mut hasher = self.hasher.build_hasher();
        // A request that may wait passes where another one is denied.
        checks.mode().waits().hash(&mut hasher);
        let mut charged = SmallVec::new();
        for check in enforced(checks) {
            let fingerprint = fingerprint_of(&self.hasher, check);
            fingerprint.hash(&mut hasher);
            let index = ChargeCounts::index_of(fingerprint);
            charged.push((index, self.charges.at(index)));
        }
        let fingerprint = hasher.finish();
        CacheLookup {
            index: fingerprint as usize % ENTRIES,
            fingerprint,
            charged,
            began_at,
            generation: self.generation.load(Ordering::Acquire),
        }
    }

    /// Returns the cached verdicts, if they are in scope and still hold.
    pub(crate) fn find(
        &self,
        lookup: &CacheLookup,
        checks: &Checks<'_>,
        scope: LookupScope,
    ) -> Option<Verdicts> {
        let locked = lock(&self.entries[lookup.index]);
        let entry = locked.as_deref()?;
        let now = lookup.began_at;
        if entry.fingerprint != lookup.fingerprint
            || entry.generation != lookup.generation
            || now >= entry.until
            || !limits(checks).eq(&entry.limits)
            || !has_denied_costs(checks, &entry.costs)
        {
            return None;
        }
        let answer = entry.answer.later(now - entry.began_at)?;
        let verdicts = answer.verdicts(checks).ok()?;
        let denies = verdicts.iter().any(|verdict| !verdict.passes());
        let is_found =
            (denies || scope == LookupScope::All) && still_holds(lookup, entry, checks, &verdicts);
        is_found.then_some(verdicts)
    }

    /// Inserts an answer, if it is in scope.
    pub(crate) fn insert(
        &self,
        lookup: &CacheLookup,
        checks: &Checks<'_>,
        answer: &Answer,
        verdicts: &[Verdict],
        scope: LookupScope,
    ) {
        if answer.permit == Some(false) {
            // Denied because no permit was free, and one may be free at any time.
            return;
        }
        let retries = verdicts
            .iter()
            .take(enforced(checks).count())
            .filter(|verdict| !verdict.passes())
            .map(|verdict| verdict.retry_after);
        let wait = match retries.max() {
            Some(Retry::After(wait)) => wait.as_duration().min(MAX_AGE),
            None if scope == LookupScope::Denials => return,
            Some(Retry::Never) | None => MAX_AGE,
        };
        let entry = Box::new(Entry {
            fingerprint: lookup.fingerprint,
            limits: limits(checks).cloned().collect(),
            costs: enforced(checks).map(|check| check.cost).collect(),
            charged: lookup.charged.iter().map(|(_, units)| *units).collect(),
            answer: answer.clone(),
            began_at: lookup.began_at,
            until: lookup.began_at + wait,
            generation: lookup.generation,
        });
        let expires = self.micros_at(entry.until).saturating_add(1);
        self.expires.fetch_max(expires, Ordering::AcqRel);
        *lock(&self.entries[lookup.index]) = Some(entry);
    }

    /// Returns what a request is charged, for [`NearCache::record`].
    pub(crate) fn charge_of(&self, checks: &Checks<'_>) -> Charge {
        Charge::of(&self.hasher, checks)
    }

    /// Records a charge that was made or undone. In both cases, answers from before no longer
    /// hold.
    pub(crate) fn record(&self, charge: &Charge) {
        self.charges.add(charge);
    }

    /// Invalidates all entries, because units have returned.
    pub(crate) fn clear(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

/// Returns whether the verdicts still hold after what this process has charged since: bands
/// that deny have the same numbers, and bands that pass still do.
fn still_holds(
    lookup: &CacheLookup,
    entry: &Entry,
    checks: &Checks<'_>,
    verdicts: &[Verdict],
) -> bool {
    let cost_at = |index: usize| {
        enforced(checks)
            .zip(&lookup.charged)
            .filter(|(_, (other, _))| *other == index)
            .fold(0_u64, |sum, (check, _)| sum.saturating_add(check.cost))
    };
    let bands = lookup.charged.iter().zip(&entry.charged).zip(verdicts);
    bands.into_iter().all(|(((index, now), then), verdict)| {
        let since = now.wrapping_sub(*then);
        let needed = cost_at(*index).saturating_add(since);
        since == 0 || verdict.passes() && u64::from(verdict.remaining) >= needed
    })
}

impl CacheLookup {
    /// Returns what the request is charged, like [`NearCache::charge_of`].
    pub(crate) fn charge(&self, checks: &Checks<'_>) -> Charge {
        Charge::at(self.charged.iter().map(|(index, _)| *index), checks)
    }
}

fn limits<'c>(checks: &'c Checks<'_>) -> impl Iterator<Item = &'c Limit> {
    enforced(checks).map(|check| check.band.limit())
}

/// Returns whether a denial of these costs holds for the checks: each costs as much or more.
/// The summary of a log holds for one cost only.
fn has_denied_costs(checks: &Checks<'_>, denied: &[u64]) -> bool {
    enforced(checks).zip(denied).all(|(check, denied)| {
        if check.band.limit().algorithm() == Algorithm::SlidingLog {
            check.cost == *denied
        } else {
            check.cost >= *denied
        }
    })
}

/// The number of counts. Bands that share one only go to the server more often.
const COUNTS: usize = 4096;

/// Returns the enforced checks.
fn enforced<'c, 'r>(checks: &'c Checks<'r>) -> impl Iterator<Item = &'c Check<'r>> {
    checks
        .list()
        .iter()
        .filter(|check| check.group == Group::ENFORCED)
}

/// Returns a hash of the counter of a check.
fn fingerprint_of(hasher: &KeyedHash, check: &Check<'_>) -> u64 {
    hasher.hash_one((check.subject.bytes, check.band.id()))
}

/// The units charged so far, by counter.
#[derive(Debug)]
struct ChargeCounts(Box<[AtomicU64]>);

/// The units that a request is charged, with the index of each count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charge(SmallVec<[(usize, u64); 4]>);

impl Default for ChargeCounts {
    fn default() -> Self {
        Self((0..COUNTS).map(|_| AtomicU64::default()).collect())
    }
}

impl ChargeCounts {
    /// Returns the index of the count for a counter.
    fn index_of(fingerprint: u64) -> usize {
        fingerprint as usize % COUNTS
    }

    fn at(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Acquire)
    }

    fn add(&self, Charge(units): &Charge) {
        for (index, units) in units {
            self.0[*index].fetch_add(*units, Ordering::AcqRel);
        }
    }
}

impl Charge {
    /// Returns the charge of the enforced checks.
    fn of(hasher: &KeyedHash, checks: &Checks<'_>) -> Self {
        let indices = enforced(checks).map(|check| fingerprint_of(hasher, check));
        Self::at(indices.map(ChargeCounts::index_of), checks)
    }

    /// Returns the charge of a request whose counts have these indices.
    fn at(indices: impl Iterator<Item = usize>, checks: &Checks<'_>) -> Self {
        if !checks.mode().takes() {
            return Self::default();
        }
        let costs = enforced(checks).map(|check| check.cost);
        Self(indices.zip(costs).collect())
    }
}
