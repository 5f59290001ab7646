//! The parts of a request by hash slot, and which of them denied last.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::Algorithm;
use fluxgate_core::store::{Check, Checks, Group, HoldRequest, Micros, Mode, Verdict};

use crate::cluster::hash_slot_of;
use crate::codec::{HoldPart, RecordedPart, charges_of};
use crate::decider::DecideOptions;
use crate::keys::KeyNaming;
use crate::near_cache::LookupScope;

/// The checks of one group in one hash slot, which one call decides.
#[derive(Debug)]
pub(super) struct RequestPart {
    hash_slot: u16,
    pub(super) group: Group,
    /// Its record, if the request has a hold.
    pub(super) hold: Option<HoldPart>,
    /// The indices of its checks among those of the request.
    indices: Vec<usize>,
}

/// Returns the parts of a request, in the order of their first checks.
pub(super) fn split_by_hash_slot(checks: &Checks<'_>, naming: &KeyNaming) -> Vec<RequestPart> {
    let mut parts: Vec<RequestPart> = Vec::new();
    let mut name = Vec::new();
    for (index, check) in checks.list().iter().enumerate() {
        name.clear();
        naming.write_subject(check.subject, &mut name);
        KeyNaming::write_band(check.band, &mut name);
        let (hash_slot, group) = (hash_slot_of(&name), check.group);
        let mut known = parts.iter_mut();
        match known.find(|part| part.hash_slot == hash_slot && part.group == group) {
            Some(part) => part.indices.push(index),
            None => parts.push(RequestPart {
                hash_slot,
                group,
                hold: None,
                indices: vec![index],
            }),
        }
    }
    if let Some(hold) = checks.hold().filter(|_| checks.mode().takes()) {
        let is_whole = parts.len() == 1;
        let life = if is_whole {
            hold.span_without_slots()
        } else {
            max_life_of(checks, hold)
        };
        for (number, part) in parts.iter_mut().enumerate() {
            let subject = checks.list()[part.indices[0]].subject;
            part.hold = Some(HoldPart {
                key: naming.part_of_hold(hold.id, subject, number),
                life,
                is_whole,
            });
        }
    }
    parts
}

/// Returns the hold of a request, if it may charge something.
pub(super) fn hold_of<'c, 'r>(checks: &'c Checks<'r>) -> Option<&'c HoldRequest<'r>> {
    let charges = checks.mode().takes() && checks.list().iter().any(|check| check.cost > 0);
    checks.hold().filter(|_| charges)
}

/// Returns the longest life of the hold of a request. It is not known yet which shadow rules
/// pass, and so which slots are taken.
pub(super) fn max_life_of(checks: &Checks<'_>, hold: &HoldRequest<'_>) -> Micros {
    let takes_slots = |check: &&Check<'_>| {
        check.cost > 0 && check.band.limit().algorithm() == Algorithm::Concurrency
    };
    let slots = checks.list().iter().filter(takes_slots);
    let has_enforced = slots.clone().any(|check| check.group == Group::ENFORCED);
    let longest = slots
        .map(|check| hold.span_of_slots(check.band.limit()))
        .max();
    let without = hold.span_without_slots();
    match longest {
        Some(longest) if has_enforced => longest,
        longest => longest.map_or(without, |longest| longest.max(without)),
    }
}

impl RequestPart {
    pub(super) fn options(&self, scope: LookupScope, skips_leases: bool) -> DecideOptions<'_> {
        DecideOptions {
            part: self.hold.as_ref(),
            permit: None,
            scope,
            skips_leases,
        }
    }

    /// Returns its checks, to be decided in this mode.
    pub(super) fn checks<'r>(&self, all: &Checks<'r>, mode: Mode) -> Checks<'r> {
        let mut checks = Checks::new(mode);
        for check in self.indices.iter().map(|index| &all.list()[*index]) {
            let band = std::slice::from_ref(check.band);
            checks.push(check.subject, band, check.cost, check.group);
        }
        if let Some(hold) = all.hold() {
            let attributes = self.indices.iter().map(|index| hold.attributes()[*index]);
            checks.set_hold(HoldRequest::new(hold.id, hold.span, attributes));
        }
        checks
    }

    /// Returns its checks for a request that is denied: checks that are charged always are
    /// charged, or reported as if they were, and the others are only peeked at.
    pub(super) fn refused_checks<'r>(&self, all: &Checks<'r>) -> Checks<'r> {
        let mode = all.mode();
        let mut checks = self.checks(all, mode);
        if !checks.charges_always() || !mode.reports_charge() {
            return self.checks(all, mode.peeking());
        }
        checks.refuse();
        checks
    }

    /// Returns its entry in the list of the parts of a hold.
    pub(super) fn record(&self, all: &Checks<'_>, naming: &KeyNaming) -> Option<RecordedPart> {
        let checks = self.checks(all, all.mode());
        Some(RecordedPart {
            key: self.hold.as_ref()?.key.clone(),
            charges: charges_of(&checks, checks.hold()?, naming),
        })
    }

    /// Copies its verdicts to their positions among all verdicts of the request.
    pub(super) fn copy_verdicts(&self, verdicts: &[Verdict], all: &mut [Option<Verdict>]) {
        for (index, verdict) in self.indices.iter().zip(verdicts) {
            all[*index] = Some(*verdict);
        }
    }

    /// Copies its verdicts after its charges are undone, except those of charges that stay.
    pub(super) fn copy_uncharged_verdicts(
        &self,
        verdicts: &[Verdict],
        checks: &Checks<'_>,
        all: &mut [Option<Verdict>],
    ) {
        for (index, verdict) in self.indices.iter().zip(verdicts) {
            if !checks.list()[*index].band.charges_always() {
                all[*index] = Some(*verdict);
            }
        }
    }
}

/// The number of entries. Subjects that share one only change the order of calls.
const ENTRIES: usize = 4096;

/// The last denial of each subject, by the number of the denial.
#[derive(Debug)]
pub(crate) struct RecentDenials {
    hasher: RandomState,
    count: AtomicU64,
    /// The number of the last denial, by the hash of the subject.
    last: Box<[AtomicU64]>,
}

impl Default for RecentDenials {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            count: AtomicU64::new(0),
            last: (0..ENTRIES).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl RecentDenials {
    /// Returns the number of the last denial of these checks; 0 if none is known.
    pub(super) fn last(&self, checks: &Checks<'_>) -> u64 {
        self.entry_of(checks).load(Ordering::Relaxed)
    }

    /// Records that these checks were denied.
    pub(super) fn record(&self, checks: &Checks<'_>) {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        self.entry_of(checks).store(number, Ordering::Relaxed);
    }

    fn entry_of(&self, checks: &Checks<'_>) -> &AtomicU64 {
        let first = checks.list().first();
        let subject = first.map(|check| check.subject.bytes);
        &self.last[self.hasher.hash_one(subject) as usize % ENTRIES]
    }
}
