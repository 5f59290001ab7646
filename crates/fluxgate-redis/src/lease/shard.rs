//! A shard of the table: the leases of some identities, under one lock.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use fluxgate_core::Band;
use fluxgate_core::key::RuleNumber;
use fluxgate_core::store::{Check, Retry, Subject, Verdict};

use super::holder::{LeaseHolder, Moment};

pub(super) const SHARDS: usize = 64;

/// Identifies a band of an identity in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseKey {
    subject: u64,
    band: u64,
}

impl LeaseKey {
    pub(super) fn new(subject: u64, band: &Band) -> Self {
        let band = band.tag();
        Self { subject, band }
    }

    /// Returns the shard of its rule and identity.
    pub(super) fn shard(self) -> usize {
        self.subject as usize % SHARDS
    }

    pub(super) fn hash(self) -> u64 {
        self.subject ^ self.band
    }
}

/// Combines the parts of a [`LeaseKey`], which are hashes already.
#[derive(Debug, Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(32) ^ number;
    }
}

/// The subject and the band whose units are on lease.
#[derive(Clone, Debug)]
pub struct LeaseOwner {
    rule: RuleNumber,
    subject: Box<[u8]>,
    band: Band,
}

impl LeaseOwner {
    pub(super) fn of(check: &Check<'_>) -> Self {
        Self {
            rule: check.subject.rule,
            subject: check.subject.bytes.into(),
            band: check.band.clone(),
        }
    }

    /// Returns the subject.
    pub fn subject(&self) -> Subject<'_> {
        Subject {
            rule: self.rule,
            bytes: &self.subject,
        }
    }

    /// Returns the band.
    pub fn band(&self) -> &Band {
        &self.band
    }
}

/// What units on lease say about a check.
#[derive(Clone, Copy, Debug)]
pub(super) enum Assessment {
    /// There are enough of them.
    Covered,
    /// The server refused such a request shortly before.
    Refused(Retry),
}

impl Assessment {
    pub(super) fn is_refused(self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) holder: LeaseHolder,
    /// What the keeper needs for a request without a decision.
    pub(super) owner: Box<LeaseOwner>,
}

impl Entry {
    /// Assesses a check; `None` if only the server can. Adds expired units to `expired`.
    pub(super) fn assess(
        &mut self,
        check: &Check<'_>,
        now: Moment,
        expired: &mut u64,
    ) -> Option<Assessment> {
        if !self.owner.band.has_same_lease(check.band) {
            return None;
        }
        *expired += self.holder.expire(now.at);
        if u64::from(self.holder.units()) >= check.cost {
            return Some(Assessment::Covered);
        }
        let retry = self.holder.refuse_again(check.cost, now)?;
        Some(Assessment::Refused(retry))
    }

    /// Spends the units of a check that was assessed, unless the request is denied. Calls
    /// `on_low` if the keeper should request more.
    pub(super) fn decide(
        &mut self,
        check: &Check<'_>,
        now: u64,
        assessment: Assessment,
        is_denied: bool,
        on_low: impl FnOnce(),
    ) -> Verdict {
        // At most the units that are available.
        if !is_denied && self.holder.spend(check.cost as u32, now) {
            on_low();
        }
        let retry = match assessment {
            Assessment::Covered => None,
            Assessment::Refused(retry) => Some(retry),
        };
        self.holder.verdict(check.band.limit(), retry, now)
    }
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) entries: HashMap<LeaseKey, Entry, BuildHasherDefault<KeyHasher>>,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) expired: u64,
}

impl Shard {
    pub(super) fn count_decision(&mut self, is_denied: bool) {
        if is_denied {
            self.denied += 1;
        } else {
            self.allowed += 1;
        }
    }
}
