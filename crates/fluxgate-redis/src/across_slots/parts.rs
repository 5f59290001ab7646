//! The parts of a request, by slot, and the parts that denied last.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use fluxgate_core::Algorithm;
use fluxgate_core::store::{Check, Checks, Group, HoldRequest, Micros, Mode, Verdict};

use crate::cluster::slot_of;
use crate::codec::{HoldPart, RecordedPart, charges_of};
use crate::decider::Place;
use crate::keys::KeyNaming;

/// The checks of one group in one slot. One call decides them.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) slot: u16,
    pub(super) group: Group,
    /// Where its record goes, if the request has a hold.
    pub(super) hold: Option<HoldPart>,
    /// Which of the request's checks.
    indices: Vec<usize>,
}

/// Returns the parts of a request, in the order of their first checks.
pub(super) fn parts_by_slot(checks: &Checks<'_>, naming: &KeyNaming) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut name = Vec::new();
    for (index, check) in checks.list().iter().enumerate() {
        name.clear();
        naming.write_subject(check.subject, &mut name);
        KeyNaming::write_band(check.band, &mut name);
        let slot = slot_of(&name);
        let group = check.group;
        let same = |part: &&mut Part| part.slot == slot && part.group == group;
        match parts.iter_mut().find(same) {
            Some(part) => part.indices.push(index),
            None => parts.push(Part {
                slot,
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
            life_of(checks, hold)
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
pub(super) fn held<'c, 'r>(checks: &'c Checks<'r>) -> Option<&'c HoldRequest<'r>> {
    let charges = checks.mode().takes() && checks.list().iter().any(|check| check.cost > 0);
    checks.hold().filter(|_| charges)
}

/// Returns how long the hold of a request lives at most. Not all of its slots may be taken:
/// which shadow rules pass is not known yet.
pub(super) fn life_of(checks: &Checks<'_>, hold: &HoldRequest<'_>) -> Micros {
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

impl Part {
    /// Returns where it is decided, and whether no units on lease can decide the
    /// request.
    pub(super) fn place(&self, is_exact: bool) -> Place<'_> {
        Place {
            slot: self.slot,
            part: self.hold.as_ref(),
            is_exact,
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

    /// Returns its checks for a request that is denied. Those that are charged in any case are
    /// charged, or reported as if they were, and otherwise nothing is.
    pub(super) fn refused_checks<'r>(&self, all: &Checks<'r>) -> Checks<'r> {
        let mode = all.mode();
        let mut checks = self.checks(all, mode);
        if !checks.charges_always() || !mode.reports_charge() {
            return self.checks(all, mode.peeking());
        }
        checks.refuse();
        checks
    }

    /// Returns what it may charge, for the list of the parts of a hold.
    pub(super) fn recorded(&self, all: &Checks<'_>, naming: &KeyNaming) -> Option<RecordedPart> {
        let checks = self.checks(all, all.mode());
        Some(RecordedPart {
            key: self.hold.as_ref()?.key.clone(),
            charges: charges_of(&checks, checks.hold()?, naming),
        })
    }

    /// Copies its verdicts to their positions among those of the whole request.
    pub(super) fn scatter(&self, verdicts: &[Verdict], all: &mut [Option<Verdict>]) {
        for (index, verdict) in self.indices.iter().zip(verdicts) {
            all[*index] = Some(*verdict);
        }
    }

    /// Copies its verdicts after its charges are undone. Those that stay keep theirs.
    pub(super) fn scatter_undone(
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

/// How many subjects are told apart. Sharing an entry only changes the order.
const ENTRIES: usize = 4096;

/// When each subject was last denied, counted in denials.
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
