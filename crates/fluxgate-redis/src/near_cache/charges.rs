//! Counts the units that this process has charged, so that the near cache does not report
//! numbers from before a charge.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::store::{Check, Checks, Group};
use smallvec::SmallVec;

/// The number of counts. Bands that share one only go to the server more often.
const COUNTS: usize = 4096;

/// Returns the enforced checks.
pub(super) fn enforced<'c, 'r>(checks: &'c Checks<'r>) -> impl Iterator<Item = &'c Check<'r>> {
    checks
        .list()
        .iter()
        .filter(|check| check.group == Group::ENFORCED)
}

/// Returns a hash of the counter of a check.
pub(super) fn fingerprint_of(hasher: &RandomState, check: &Check<'_>) -> u64 {
    hasher.hash_one((check.subject.bytes, check.band.id()))
}

/// The units charged so far, by counter.
#[derive(Debug)]
pub(super) struct ChargeCounts(Box<[AtomicU64]>);

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
    pub(super) fn index_of(fingerprint: u64) -> usize {
        fingerprint as usize % COUNTS
    }

    pub(super) fn at(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Acquire)
    }

    pub(super) fn add(&self, Charge(units): &Charge) {
        for (index, units) in units {
            self.0[*index].fetch_add(*units, Ordering::AcqRel);
        }
    }
}

impl Charge {
    /// Returns the charge of the enforced checks.
    pub(super) fn of(hasher: &RandomState, checks: &Checks<'_>) -> Self {
        let indices = enforced(checks).map(|check| fingerprint_of(hasher, check));
        Self::at(indices.map(ChargeCounts::index_of), checks)
    }

    /// Returns the charge of a request whose counts have these indices.
    pub(super) fn at(indices: impl Iterator<Item = usize>, checks: &Checks<'_>) -> Self {
        if !checks.mode().takes() {
            return Self::default();
        }
        let costs = enforced(checks).map(|check| check.cost);
        Self(indices.zip(costs).collect())
    }
}
