//! Which bands refused last.
//!
//! Where the bands of a request are in several slots, those that refused last
//! are asked first: if they refuse again, the others need not be charged and
//! given back.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::Checks;

/// How many are told apart. Who shares a place is only asked out of turn.
const PLACES: usize = 4096;

#[derive(Debug)]
pub(crate) struct Refusals {
    hasher: RandomState,
    /// How many refusals there have been.
    count: AtomicU64,
    /// The number of the last refusal of each.
    last: Box<[AtomicU64]>,
}

impl Default for Refusals {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            count: AtomicU64::new(0),
            last: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Refusals {
    /// The number of the last refusal of these checks; 0 if none is known.
    pub(crate) fn last(&self, checks: &Checks<'_>) -> u64 {
        self.last[self.place_of(checks)].load(Ordering::Relaxed)
    }

    /// Notes that these checks were refused.
    pub(crate) fn note(&self, checks: &Checks<'_>) {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        self.last[self.place_of(checks)].store(number, Ordering::Relaxed);
    }

    fn place_of(&self, checks: &Checks<'_>) -> usize {
        let first = checks.list().first();
        let subject = first.map(|check| check.subject.bytes);
        self.hasher.hash_one(subject) as usize % PLACES
    }
}
