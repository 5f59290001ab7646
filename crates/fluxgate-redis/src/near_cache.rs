//! Denials that are known, so that a client who hammers a used up limit does
//! not reach the server with every blow.
//!
//! An entry is what the server found when it denied. A request for the same
//! bands is judged on that again, at the time it is now by the monotonic clock:
//! while that still denies, so would the server, for others can only have taken
//! more. Where this process has taken more itself, and so much that the numbers
//! or the bands that refuse would be others, the server is asked. Nothing is kept
//! beyond a second, and nothing across a refund or reset that was made here. A
//! rule that was changed asks for other bands.

mod charges;

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fluxgate_core::{Algorithm, Check, Checks, Group, Limit, Retry, Verdict, Verdicts};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::codec::Answer;
pub(crate) use charges::Charge;
use charges::{Charges, print_of};

/// The longest that a denial is remembered.
const LONGEST: Duration = Duration::from_secs(1);
/// How many are remembered; a new one takes the place of an old one.
const ENTRIES: usize = 4096;

#[derive(Debug)]
pub(crate) struct NearCache {
    entries: Box<[Mutex<Option<Box<Entry>>>]>,
    hasher: RandomState,
    charges: Charges,
    /// Goes up when something was given back here.
    generation: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    /// What stands for the bands that were asked.
    print: u64,
    costs: SmallVec<[u64; 4]>,
    /// What had been charged to each of them before they were asked.
    charged: SmallVec<[u64; 4]>,
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
    /// Where what is charged to each band is counted, and what was so far.
    charged: SmallVec<[(usize, u64); 4]>,
    asked: Instant,
    generation: u64,
}

/// What of the things that are known is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A denial.
    Denial,
    /// Anything: the request is denied whatever these bands say.
    Anything,
}

impl Default for NearCache {
    fn default() -> Self {
        Self {
            entries: (0..ENTRIES).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            charges: Charges::default(),
            generation: AtomicU64::new(0),
        }
    }
}

impl NearCache {
    /// What is about to be asked, now.
    pub(crate) fn question(&self, checks: &Checks<'_>, now: Instant) -> Question {
        // Keyed, so that nobody can make questions that are taken for others.
        let mut hasher = self.hasher.build_hasher();
        // What is denied at once may pass for who can wait.
        checks.mode().waits().hash(&mut hasher);
        let mut charged = SmallVec::new();
        for check in enforced(checks) {
            let print = print_of(&self.hasher, check);
            print.hash(&mut hasher);
            hash_limit(check.band.limit(), &mut hasher);
            let place = Charges::place_of(print);
            charged.push((place, self.charges.at(place)));
        }
        let print = hasher.finish();
        Question {
            place: print as usize % ENTRIES,
            print,
            charged,
            asked: now,
            generation: self.generation.load(Ordering::Acquire),
        }
    }

    /// What is known, if that is an answer.
    pub(crate) fn answer(
        &self,
        question: &Question,
        checks: &Checks<'_>,
        wanted: Wanted,
    ) -> Option<Verdicts> {
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
        let denies = verdicts.iter().any(|verdict| !verdict.passes());
        let is_answer = (denies || wanted == Wanted::Anything)
            && still_holds(question, entry, checks, &verdicts);
        is_answer.then_some(verdicts)
    }

    /// Keeps an answer: a denial, or any that was wanted.
    pub(crate) fn keep(
        &self,
        question: Question,
        checks: &Checks<'_>,
        answer: &Answer,
        verdicts: &[Verdict],
        wanted: Wanted,
    ) {
        if answer.place() == Some(false) {
            // Denied for want of a place, and places free themselves.
            return;
        }
        let enforced_count = enforced(checks).count();
        let refusing = verdicts.iter().take(enforced_count);
        let refusing = refusing.filter(|verdict| !verdict.passes());
        let wait = match refusing.map(|verdict| verdict.retry_after).max() {
            Some(Retry::After(wait)) => wait.as_duration().min(LONGEST),
            None if wanted == Wanted::Denial => return,
            Some(Retry::Never) | None => LONGEST,
        };
        let entry = Box::new(Entry {
            print: question.print,
            costs: enforced(checks).map(|check| check.cost).collect(),
            charged: question.charged.iter().map(|(_, units)| *units).collect(),
            answer: answer.clone(),
            asked: question.asked,
            until: question.asked + wait,
            generation: question.generation,
        });
        let place = self.entries[question.place].lock();
        *place.unwrap_or_else(PoisonError::into_inner) = Some(entry);
    }

    /// What a request is charged, to be noted once it is.
    pub(crate) fn charge_of(&self, checks: &Checks<'_>) -> Charge {
        Charge::of(&self.hasher, checks)
    }

    /// Notes a charge that stays, or that was taken back: in both cases what was
    /// seen meanwhile is not what is there now.
    pub(crate) fn note(&self, charge: &Charge) {
        self.charges.add(charge);
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

/// Whether a band that refuses still has the numbers it had, and one that passes
/// would pass after what this process has charged since.
fn still_holds(
    question: &Question,
    entry: &Entry,
    checks: &Checks<'_>,
    verdicts: &[Verdict],
) -> bool {
    let asked_of = |place: usize| {
        let asked = enforced(checks).zip(&question.charged);
        let asked = asked.filter(|(_, (other, _))| *other == place);
        asked.fold(0_u64, |sum, (check, _)| sum.saturating_add(check.cost))
    };
    let bands = question.charged.iter().zip(&entry.charged).zip(verdicts);
    bands.into_iter().all(|(((place, now), then), verdict)| {
        let since = now.wrapping_sub(*then);
        let needed = asked_of(*place).saturating_add(since);
        since == 0 || verdict.passes() && u64::from(verdict.remaining) >= needed
    })
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
