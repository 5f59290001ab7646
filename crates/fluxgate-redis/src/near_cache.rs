//! Denials that are known, so that a client who hammers a used up limit does
//! not reach the server with every blow.
//!
//! An entry is what the server found when it denied. A request for the same
//! bands is judged on that again, at the time it is now by the monotonic clock:
//! while that still denies, so would the server, for others can only have taken
//! more. Nothing is kept beyond a second, and nothing across a refund or reset
//! that was made here. A rule that was changed asks for other bands.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fluxgate_core::{Algorithm, Check, Checks, Group, Limit, Retry, Verdict, Verdicts};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::codec::Answer;

/// The longest that a denial is remembered.
const LONGEST: Duration = Duration::from_secs(1);
/// How many are remembered; a new one takes the place of an old one.
const ENTRIES: usize = 4096;

#[derive(Debug)]
pub(crate) struct NearCache {
    entries: Box<[Mutex<Option<Box<Entry>>>]>,
    hasher: RandomState,
    /// Goes up when something was given back here.
    generation: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    /// What stands for the bands that were asked.
    print: u64,
    costs: SmallVec<[u64; 4]>,
    answer: Answer,
    asked: Instant,
    until: Instant,
    generation: u64,
}

/// A question that may be answered here, or whose answer may be kept.
#[derive(Debug)]
pub(crate) struct Question {
    place: usize,
    print: u64,
    asked: Instant,
    generation: u64,
}

impl Default for NearCache {
    fn default() -> Self {
        Self {
            entries: (0..ENTRIES).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            generation: AtomicU64::new(0),
        }
    }
}

impl NearCache {
    /// What is about to be asked, now.
    pub(crate) fn question(&self, checks: &Checks<'_>, now: Instant) -> Question {
        // Keyed, so that nobody can make questions that are taken for others.
        let mut hasher = self.hasher.build_hasher();
        for check in enforced(checks) {
            checks.subject(check).bytes.hash(&mut hasher);
            check.band.id().hash(&mut hasher);
            hash_limit(check.band.limit(), &mut hasher);
        }
        let print = hasher.finish();
        Question {
            place: print as usize % ENTRIES,
            print,
            asked: now,
            generation: self.generation.load(Ordering::Acquire),
        }
    }

    /// The denial, if it is known.
    pub(crate) fn answer(&self, question: &Question, checks: &Checks<'_>) -> Option<Verdicts> {
        let entry = self.entries[question.place].lock();
        let entry = entry.unwrap_or_else(PoisonError::into_inner);
        let entry = entry.as_deref()?;
        let now = question.asked;
        if entry.print != question.print
            || entry.generation != question.generation
            || now >= entry.until
            || !costs_as_much(checks, &entry.costs)
        {
            return None;
        }
        let answer = entry.answer.later(now - entry.asked)?;
        let verdicts = answer.verdicts(checks).ok()?;
        verdicts
            .iter()
            .any(|verdict| !verdict.passes())
            .then_some(verdicts)
    }

    /// Keeps a denial.
    pub(crate) fn keep(
        &self,
        question: Question,
        checks: &Checks<'_>,
        answer: &Answer,
        verdicts: &[Verdict],
    ) {
        let enforced_count = enforced(checks).count();
        let refusing = verdicts.iter().take(enforced_count);
        let refusing = refusing.filter(|verdict| !verdict.passes());
        let Some(longest) = refusing.map(|verdict| verdict.retry_after).max() else {
            return;
        };
        let wait = match longest {
            Retry::After(wait) => wait.as_duration().min(LONGEST),
            Retry::Never => LONGEST,
        };
        let entry = Box::new(Entry {
            print: question.print,
            costs: enforced(checks).map(|check| check.cost).collect(),
            answer: answer.clone(),
            asked: question.asked,
            until: question.asked + wait,
            generation: question.generation,
        });
        let place = self.entries[question.place].lock();
        *place.unwrap_or_else(PoisonError::into_inner) = Some(entry);
    }

    /// Forgets everything: something was given back.
    pub(crate) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

fn enforced<'c, 'r>(checks: &'c Checks<'r>) -> impl Iterator<Item = &'c Check<'r>> {
    let list = checks.list().iter();
    list.filter(|check| check.group == Group::ENFORCED)
}

/// What was denied is denied again for the same cost or a greater one. What is
/// known of a log holds for one cost only.
fn costs_as_much(checks: &Checks<'_>, known: &[u64]) -> bool {
    enforced(checks).zip(known).all(|(check, known)| {
        if check.band.limit().algorithm() == Algorithm::SlidingLog {
            check.cost == *known
        } else {
            check.cost >= *known
        }
    })
}

fn hash_limit(limit: &Limit, hasher: &mut impl Hasher) {
    let rate = limit.rate();
    limit.algorithm().hash(hasher);
    (limit.capacity(), limit.window().get()).hash(hasher);
    (rate.refill(), rate.period().get(), rate.shape()).hash(hasher);
    rate.max_wait().map(|wait| wait.get()).hash(hasher);
}
