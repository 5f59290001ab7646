//! Remembers denials, so that a client that keeps exceeding a limit does not reach
//! the server with every request.
//!
//! An entry is the script's answer to a denied request. A request for the same
//! bands is evaluated against it again, at the current time by the monotonic clock.
//! While that denies, so would the server, since other processes can only have
//! taken more. If this process has taken so much more that the numbers or the
//! denying bands would differ, the server is asked. An entry lasts at most a
//! second, and no longer than the next refund or reset made here. A changed rule
//! has other bands.

mod charges;

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fluxgate_core::store::{Checks, Retry, Verdict, Verdicts};
use fluxgate_core::{Algorithm, Limit};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::codec::Answer;
pub(crate) use charges::Charge;
use charges::{Charges, enforced, fingerprint_of};

/// How long a denial is remembered at most.
const MAX_AGE: Duration = Duration::from_secs(1);
/// How many denials are remembered; a new one replaces an old one.
const ENTRIES: usize = 4096;

#[derive(Debug)]
pub(crate) struct NearCache {
    entries: Box<[Mutex<Option<Box<Entry>>>]>,
    hasher: RandomState,
    charges: Charges,
    /// Increases when units were given back here.
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
    /// What this process had charged to each band when it asked.
    charged: SmallVec<[u64; 4]>,
    answer: Answer,
    asked: Instant,
    until: Instant,
    generation: u64,
}

/// A request that may be answered from the cache, or whose answer may be kept.
#[derive(Debug)]
pub(crate) struct Question {
    index: usize,
    fingerprint: u64,
    /// For each band, the index of its counter and its count.
    charged: SmallVec<[(usize, u64); 4]>,
    asked: Instant,
    generation: u64,
}

/// Which cached answers the caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Denials only.
    Denial,
    /// Any: the request is denied whatever these bands answer.
    Anything,
}

impl Default for NearCache {
    fn default() -> Self {
        Self {
            entries: (0..ENTRIES).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            charges: Charges::default(),
            generation: AtomicU64::new(0),
            start: Instant::now(),
            expires: AtomicU64::new(0),
        }
    }
}

impl NearCache {
    /// Returns whether every entry has expired. Then there is no need to look for one.
    pub(crate) fn has_expired(&self, now: Instant) -> bool {
        self.micros_at(now) >= self.expires.load(Ordering::Acquire)
    }

    fn micros_at(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(self.start);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// Describes checks that are about to be decided.
    pub(crate) fn question(&self, checks: &Checks<'_>, now: Instant) -> Question {
        // Keyed, so that clients cannot cause collisions.
        let mut hasher = self.hasher.build_hasher();
        // A request that can wait may pass where another is denied.
        checks.mode().waits().hash(&mut hasher);
        let mut charged = SmallVec::new();
        for check in enforced(checks) {
            let fingerprint = fingerprint_of(&self.hasher, check);
            fingerprint.hash(&mut hasher);
            let index = Charges::index_of(fingerprint);
            charged.push((index, self.charges.at(index)));
        }
        let fingerprint = hasher.finish();
        Question {
            index: fingerprint as usize % ENTRIES,
            fingerprint,
            charged,
            asked: now,
            generation: self.generation.load(Ordering::Acquire),
        }
    }

    /// Returns the cached verdicts, if they are wanted and still hold.
    pub(crate) fn answer(
        &self,
        question: &Question,
        checks: &Checks<'_>,
        wanted: Wanted,
    ) -> Option<Verdicts> {
        let entry = self.entries[question.index].lock();
        let entry = entry.unwrap_or_else(PoisonError::into_inner);
        let entry = entry.as_deref()?;
        let now = question.asked;
        if entry.fingerprint != question.fingerprint
            || entry.generation != question.generation
            || now >= entry.until
            || !limits(checks).eq(&entry.limits)
            || !costs_as_much(checks, &entry.costs)
        {
            return None;
        }
        let answer = entry.answer.later(now - entry.asked)?;
        let verdicts = answer.verdicts(checks).ok()?;
        let denies = verdicts.iter().any(|verdict| !verdict.passes());
        let is_answer = (denies || wanted == Wanted::Anything)
            && still_holds(question, entry, checks, &verdicts);
        is_answer.then_some(verdicts)
    }

    /// Keeps an answer, if it is of the wanted kind.
    pub(crate) fn keep(
        &self,
        question: &Question,
        checks: &Checks<'_>,
        answer: &Answer,
        verdicts: &[Verdict],
        wanted: Wanted,
    ) {
        if answer.permit() == Some(false) {
            // Denied because no permit was free, and one may be free any time.
            return;
        }
        let enforced_count = enforced(checks).count();
        let denying = verdicts.iter().take(enforced_count);
        let denying = denying.filter(|verdict| !verdict.passes());
        let wait = match denying.map(|verdict| verdict.retry_after).max() {
            Some(Retry::After(wait)) => wait.as_duration().min(MAX_AGE),
            None if wanted == Wanted::Denial => return,
            Some(Retry::Never) | None => MAX_AGE,
        };
        let entry = Box::new(Entry {
            fingerprint: question.fingerprint,
            limits: limits(checks).cloned().collect(),
            costs: enforced(checks).map(|check| check.cost).collect(),
            charged: question.charged.iter().map(|(_, units)| *units).collect(),
            answer: answer.clone(),
            asked: question.asked,
            until: question.asked + wait,
            generation: question.generation,
        });
        let expires = self.micros_at(entry.until).saturating_add(1);
        self.expires.fetch_max(expires, Ordering::AcqRel);
        let slot = self.entries[question.index].lock();
        *slot.unwrap_or_else(PoisonError::into_inner) = Some(entry);
    }

    /// Returns what a request is charged, for [`NearCache::record`].
    pub(crate) fn charge_of(&self, checks: &Checks<'_>) -> Charge {
        Charge::of(&self.hasher, checks)
    }

    /// Records a charge that was made, or undone: in both cases, answers from
    /// meanwhile no longer hold.
    pub(crate) fn record(&self, charge: &Charge) {
        self.charges.add(charge);
    }

    /// Invalidates all entries: units were given back.
    pub(crate) fn clear(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

/// Returns whether the verdicts still hold after what this process has charged
/// since: those of bands that deny are unchanged, and bands that pass still pass.
fn still_holds(
    question: &Question,
    entry: &Entry,
    checks: &Checks<'_>,
    verdicts: &[Verdict],
) -> bool {
    let cost_at = |index: usize| {
        let checks = enforced(checks).zip(&question.charged);
        let checks = checks.filter(|(_, (other, _))| *other == index);
        checks.fold(0_u64, |sum, (check, _)| sum.saturating_add(check.cost))
    };
    let bands = question.charged.iter().zip(&entry.charged).zip(verdicts);
    bands.into_iter().all(|(((index, now), then), verdict)| {
        let since = now.wrapping_sub(*then);
        let needed = cost_at(*index).saturating_add(since);
        since == 0 || verdict.passes() && u64::from(verdict.remaining) >= needed
    })
}

impl Question {
    /// Returns what the request is charged, like [`NearCache::charge_of`].
    pub(crate) fn charge(&self, checks: &Checks<'_>) -> Charge {
        Charge::at(self.charged.iter().map(|(index, _)| *index), checks)
    }
}

fn limits<'c>(checks: &'c Checks<'_>) -> impl Iterator<Item = &'c Limit> {
    enforced(checks).map(|check| check.band.limit())
}

/// Returns whether a denial for the known costs holds for these checks: those of
/// the same cost or a greater one. The summary of a log holds for one cost only.
fn costs_as_much(checks: &Checks<'_>, known: &[u64]) -> bool {
    enforced(checks).zip(known).all(|(check, known)| {
        if check.band.limit().algorithm() == Algorithm::SlidingLog {
            check.cost == *known
        } else {
            check.cost >= *known
        }
    })
}
