//! Units that were charged through this process, so that a denial that is
//! remembered does not speak of what was there before them.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::{Check, Checks};
use smallvec::SmallVec;

use super::enforced;

/// How many counts there are. Counters that share one only let the server be
/// asked more often.
const COUNTS: usize = 4096;

/// The counter of a check, as a number that stands for it.
pub(super) fn print_of(hasher: &RandomState, check: &Check<'_>) -> u64 {
    hasher.hash_one((check.subject.bytes, check.band.id()))
}

/// So many units for each counter, and more with every charge.
#[derive(Debug)]
pub(super) struct Charges(Box<[AtomicU64]>);

/// What a request is charged, and where it is counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charge(SmallVec<[(usize, u64); 4]>);

impl Default for Charges {
    fn default() -> Self {
        Self((0..COUNTS).map(|_| AtomicU64::default()).collect())
    }
}

impl Charges {
    /// Where the counter with this print is counted.
    pub(super) fn place_of(print: u64) -> usize {
        print as usize % COUNTS
    }

    /// What was charged there so far.
    pub(super) fn at(&self, place: usize) -> u64 {
        self.0[place].load(Ordering::Acquire)
    }

    pub(super) fn add(&self, Charge(units): &Charge) {
        for (place, units) in units {
            self.0[*place].fetch_add(*units, Ordering::AcqRel);
        }
    }
}

impl Charge {
    /// The charge of what is enforced of these checks.
    pub(super) fn of(hasher: &RandomState, checks: &Checks<'_>) -> Self {
        if !checks.mode().takes() {
            return Self::default();
        }
        let counted = enforced(checks).map(|check| {
            let print = print_of(hasher, check);
            (Charges::place_of(print), check.cost)
        });
        Self(counted.collect())
    }
}
