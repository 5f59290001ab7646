//! A shard of the table: the leases of some identities, under one lock.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use fluxgate_core::Band;
use fluxgate_core::internals::RuleNumber;
use fluxgate_core::store::{Check, Retry, Subject, Verdict};

use super::kept_lease::KeptLease;

pub(crate) const SHARDS: usize = 64;

/// Identifies a band of an identity in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseKey {
    subject: u64,
    band: u64,
}

impl LeaseKey {
    pub(crate) fn new(subject: u64, band: &Band) -> Self {
        let band = band.tag();
        Self { subject, band }
    }

    /// Returns the shard of its rule and identity.
    pub(crate) fn shard(self) -> usize {
        self.subject as usize % SHARDS
    }

    /// Returns a hash of it.
    pub(crate) fn hash(self) -> u64 {
        self.subject ^ self.band
    }
}

/// The parts of a key are hashes.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher(u64);

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

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kept: KeptLease,
    /// What the keeper needs to ask without a request.
    pub(crate) owner: Box<Owner>,
}

impl Entry {
    /// Returns whether its units suffice for a check, or the refusal of it; `None` if only the
    /// store can decide. `now` has the number of refunds and resets, too.
    pub(crate) fn assess(
        &mut self,
        check: &Check<'_>,
        (now, generation): (u64, u64),
        expired: &mut u64,
    ) -> Option<Option<Retry>> {
        if !self.owner.band.has_same_lease(check.band) {
            return None;
        }
        if u64::from(self.kept.available(now, expired)) >= check.cost {
            return Some(None);
        }
        self.kept.refusal(check.cost, generation, now).map(Some)
    }

    /// Spends the units of a check that was assessed, unless the request is denied. Calls
    /// `low` if it is time to ask for more.
    pub(crate) fn decide(
        &mut self,
        check: &Check<'_>,
        now: u64,
        refusal: Option<Retry>,
        is_denied: bool,
        low: impl FnOnce(),
    ) -> Verdict {
        // At most the units that are available.
        if !is_denied && self.kept.spend(check.cost as u32, now) {
            low();
        }
        self.kept.verdict(check.band.limit(), refusal, now)
    }
}

/// Whose units they are.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    rule: RuleNumber,
    subject: Box<[u8]>,
    pub(crate) band: Band,
}

impl Owner {
    pub(crate) fn of(check: &Check<'_>) -> Self {
        Self {
            rule: check.subject.rule,
            subject: check.subject.bytes.into(),
            band: check.band.clone(),
        }
    }

    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject {
            rule: self.rule,
            bytes: &self.subject,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) entries: HashMap<LeaseKey, Entry, BuildHasherDefault<KeyHasher>>,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) expired: u64,
}

impl Shard {
    pub(crate) fn count(&mut self, is_denied: bool) {
        if is_denied {
            self.denied += 1;
        } else {
            self.allowed += 1;
        }
    }
}
