//! Decides a request whose checks are in several hash slots of a cluster.
//!
//! A hold has a record in each hash slot, written by the call that charges there, and deleted
//! if the charge is undone. The list of the records is written when all enforced checks have
//! passed, before the caller gets the id.

use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::random::KeyedHash;
use fluxgate_core::store::{
    Check, Checks, Group, HoldRequest, Micros, Mode, Reason, Retry, Verdict, Verdicts,
};
use fluxgate_core::{Algorithm, StoreError, Timestamp};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::cluster::hash_slot_of;
use crate::codec::{Answer, HoldPart, RecordedPart, Request, charges_of};
use crate::decider::{DecideOptions, Decider};
use crate::error::error;
use crate::holds;
use crate::keys::KeyNaming;
use crate::lease::is_leasable;
use crate::near_cache::LookupScope;

/// Decides the enforced checks hash slot by hash slot, and undoes their charges if a later one
/// denies. Then decides each shadow rule.
pub(crate) async fn decide(
    decider: &Arc<Decider>,
    recent_denials: &RecentDenials,
    checks: &Checks<'_>,
    deadline: Instant,
) -> Result<Verdicts, StoreError> {
    let mode = checks.mode();
    let skips_leases = !is_leasable(checks);
    let parts = split_by_hash_slot(checks, &decider.naming);
    let is_enforced = |part: &&RequestPart| part.group == Group::ENFORCED;
    let mut verdicts = vec![None; checks.list().len()];
    let mut charges = PendingCharges::new(decider);
    let with_checks = |part| (part, RequestPart::checks(part, checks, mode));
    let mut enforced: Vec<_> = parts.iter().filter(is_enforced).map(with_checks).collect();
    if enforced.len() > 1 {
        // Parts that denied last come first: if they deny again, there is nothing to undo.
        enforced.sort_by_cached_key(|(_, part_checks)| Reverse(recent_denials.last(part_checks)));
    }
    // A request whose denial is cached is not charged anywhere.
    let cached: Vec<_> = enforced
        .iter()
        .map(|(_, part_checks)| decider.cached_denial(part_checks, deadline))
        .collect();
    let mut denied = checks.is_refused() || cached.iter().any(Option::is_some);
    for ((part, part_checks), cached) in enforced.into_iter().zip(cached) {
        if let Some(denial) = cached {
            recent_denials.record(&part_checks);
            part.copy_verdicts(&denial, &mut verdicts);
            continue;
        }
        // After a denial, the other parts only report whether they would deny, too, and charge
        // what is charged always.
        let (part_checks, scope) = if denied {
            (part.refused_checks(checks), LookupScope::All)
        } else {
            (part_checks, LookupScope::Denials)
        };
        let options = part.options(scope, skips_leases);
        let decision = match decider.decide_with(&part_checks, options, deadline).await {
            Ok(decision) => decision,
            // The request is denied whatever this part would have answered.
            Err(_) if denied => {
                part.copy_verdicts(&unused_verdicts(&part_checks), &mut verdicts);
                continue;
            }
            Err(cause) => {
                // It may have been charged.
                decider.record_charge(&decider.charge_of(&part_checks));
                charges.undo(deadline).await;
                return Err(cause);
            }
        };
        let passes = decision.passes();
        part.copy_verdicts(&decision.verdicts, &mut verdicts);
        if !passes {
            recent_denials.record(&part_checks);
        }
        if passes && !denied {
            if let Some(answer) = decision.answer {
                charges.push(part, part_checks, answer);
            }
        } else if !denied {
            denied = true;
            // The charges are undone, so report what is left without them.
            for (part, answer) in charges.parts() {
                let peeks = part.checks(checks, mode.peeking());
                part.copy_uncharged_verdicts(&answer.verdicts(&peeks)?, checks, &mut verdicts);
            }
            charges.undo(deadline).await;
        }
    }
    let hold = hold_of(checks).filter(|_| !denied);
    if let Some(hold) = hold {
        // Written before the caller gets the id. The shadow rules in it may charge nothing.
        let list: Vec<_> = parts
            .iter()
            .filter_map(|part| part.record(checks, &decider.naming))
            .collect();
        // A request can be cancelled while it waits, even if the hold has ended.
        let delays = verdicts.iter().flatten().map(|verdict| verdict.delay);
        let life = delays.fold(max_life_of(checks, hold), Micros::max);
        if let Err(cause) = holds::write_list(decider, hold.id, &list, life, deadline).await {
            charges.undo(deadline).await;
            return Err(cause);
        }
    }
    charges.keep();
    if !denied {
        for part in parts.iter().filter(|part| !is_enforced(part)) {
            let part_checks = part.checks(checks, mode);
            let options = part.options(LookupScope::Denials, skips_leases);
            // The request has passed. A shadow rule whose node is gone passes, too.
            match decider.decide_with(&part_checks, options, deadline).await {
                Ok(decision) => part.copy_verdicts(&decision.verdicts, &mut verdicts),
                Err(_) => part.copy_verdicts(&unused_verdicts(&part_checks), &mut verdicts),
            }
        }
    }
    if let Some(hold) = hold
        && !is_any_charged(checks, &verdicts)
    {
        holds::delete_list(decider, hold.id, deadline).await;
    }
    let is_decided = |check: &&Check<'_>| !denied || check.group == Group::ENFORCED;
    let decided = checks.list().iter().filter(is_decided).count();
    let verdicts: Option<Verdicts> = verdicts.into_iter().take(decided).collect();
    verdicts.ok_or_else(|| error(Reason::BAD_RESPONSE, "not every check was answered"))
}

/// Returns whether a request that passed charged anything: its enforced checks, if they cost
/// any units, or a shadow rule that passed.
fn is_any_charged(checks: &Checks<'_>, verdicts: &[Option<Verdict>]) -> bool {
    let mut costly = checks.list().iter().filter(|check| check.cost > 0);
    costly.any(|check| {
        let mut group = checks.list().iter().zip(verdicts);
        group.all(|(other, verdict)| {
            other.group != check.group || verdict.is_none_or(|verdict| verdict.passes())
        })
    })
}

/// Returns the verdicts of bands without any charge, for bands whose node does not answer.
fn unused_verdicts(checks: &Checks<'_>) -> Verdicts {
    let verdict = |check: &Check<'_>| {
        let capacity = check.band.shared_limit().capacity();
        Verdict {
            at: Timestamp::default(),
            // At most MAX_UNITS.
            remaining: capacity as u32,
            part: 0,
            retry_after: if check.cost > capacity {
                Retry::Never
            } else {
                Retry::NOW
            },
            reset_after: Micros::default(),
            delay: Micros::default(),
        }
    };
    checks.list().iter().map(verdict).collect()
}

/// The checks of one group in one hash slot, which one call decides.
#[derive(Debug)]
struct RequestPart {
    hash_slot: u16,
    group: Group,
    /// Its record, if the request has a hold.
    hold: Option<HoldPart>,
    /// The indices of its checks among those of the request.
    indices: Vec<usize>,
}

/// Returns the parts of a request, in the order of their first checks.
fn split_by_hash_slot(checks: &Checks<'_>, naming: &KeyNaming) -> Vec<RequestPart> {
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
fn hold_of<'c, 'r>(checks: &'c Checks<'r>) -> Option<&'c HoldRequest<'r>> {
    let charges = checks.mode().takes() && checks.list().iter().any(|check| check.cost > 0);
    checks.hold().filter(|_| charges)
}

/// Returns the longest life of the hold of a request. It is not known yet which shadow rules
/// pass, and so which slots are taken.
fn max_life_of(checks: &Checks<'_>, hold: &HoldRequest<'_>) -> Micros {
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
    fn options(&self, scope: LookupScope, skips_leases: bool) -> DecideOptions<'_> {
        DecideOptions {
            part: self.hold.as_ref(),
            permit: None,
            scope,
            skips_leases,
        }
    }

    /// Returns its checks, to be decided in this mode.
    fn checks<'r>(&self, all: &Checks<'r>, mode: Mode) -> Checks<'r> {
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
    fn refused_checks<'r>(&self, all: &Checks<'r>) -> Checks<'r> {
        let mut checks = self.checks(all, all.mode());
        checks.refuse();
        checks
    }

    /// Returns its entry in the list of the parts of a hold.
    fn record(&self, all: &Checks<'_>, naming: &KeyNaming) -> Option<RecordedPart> {
        let checks = self.checks(all, all.mode());
        Some(RecordedPart {
            key: self.hold.as_ref()?.key.clone(),
            charges: charges_of(&checks, checks.hold()?, naming),
        })
    }

    /// Copies its verdicts to their positions among all verdicts of the request.
    fn copy_verdicts(&self, verdicts: &[Verdict], all: &mut [Option<Verdict>]) {
        for (index, verdict) in self.indices.iter().zip(verdicts) {
            all[*index] = Some(*verdict);
        }
    }

    /// Copies its verdicts after its charges are undone, except those of charges that stay.
    fn copy_uncharged_verdicts(
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
    hasher: KeyedHash,
    count: AtomicU64,
    /// The number of the last denial, by the hash of the subject.
    last: Box<[AtomicU64]>,
}

impl Default for RecentDenials {
    fn default() -> Self {
        Self {
            hasher: KeyedHash::random(),
            count: AtomicU64::new(0),
            last: (0..ENTRIES).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl RecentDenials {
    /// Returns the number of the last denial of these checks; 0 if none is known.
    fn last(&self, checks: &Checks<'_>) -> u64 {
        self.entry_of(checks).load(Ordering::Relaxed)
    }

    /// Records that these checks were denied.
    fn record(&self, checks: &Checks<'_>) {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        self.entry_of(checks).store(number, Ordering::Relaxed);
    }

    fn entry_of(&self, checks: &Checks<'_>) -> &AtomicU64 {
        let first = checks.list().first();
        let subject = first.map(|check| check.subject.bytes);
        &self.last[self.hasher.hash_one(subject) as usize % ENTRIES]
    }
}

/// How long an undo may take, even after the deadline of the request.
const UNDO_TIMEOUT: Duration = Duration::from_millis(500);

/// Charges of a request that is not decided yet. They are undone on drop, since the caller may
/// drop the request before it is decided.
struct PendingCharges<'p, 'r> {
    decider: &'p Arc<Decider>,
    parts: Vec<(&'p RequestPart, Checks<'r>, Answer)>,
}

/// Undoes the effects of a part.
enum PartUndo {
    /// Undoes the charges, and deletes the record of the hold.
    Charges(Box<Request>),
    /// Deletes only the record of the hold, at this key.
    Record(Vec<u8>),
}

impl<'p, 'r> PendingCharges<'p, 'r> {
    fn new(decider: &'p Arc<Decider>) -> Self {
        let parts = Vec::new();
        Self { decider, parts }
    }

    fn push(&mut self, part: &'p RequestPart, checks: Checks<'r>, answer: Answer) {
        self.parts.push((part, checks, answer));
    }

    /// Returns the charged parts, each with the script's answer.
    fn parts(&self) -> impl Iterator<Item = (&'p RequestPart, &Answer)> {
        self.parts.iter().map(|(part, _, answer)| (*part, answer))
    }

    /// Makes the charges final: the request has passed.
    fn keep(mut self) {
        for (_, checks, _) in self.parts.drain(..) {
            self.decider.record_charge(&self.decider.charge_of(&checks));
        }
    }

    /// Undoes all charges. Waits until the deadline; after that, the undo goes on in the
    /// background.
    async fn undo(&mut self, deadline: Instant) {
        if let Some(task) = self.start_undo() {
            let _ = timeout_at(deadline, task).await;
        }
    }

    fn start_undo(&mut self) -> Option<JoinHandle<()>> {
        let decider = self.decider;
        let undos = self.parts.drain(..).filter_map(|(part, checks, answer)| {
            let request = Request::undo(&checks, &answer, &decider.naming, part.hold.as_ref());
            let undo = match (request.ok()?, &part.hold) {
                (Some(request), _) => PartUndo::Charges(Box::new(request)),
                // All its charges are made always, so they stay, but there is no hold.
                (None, Some(hold)) => PartUndo::Record(hold.key.clone()),
                (None, None) => return None,
            };
            Some((undo, decider.charge_of(&checks)))
        });
        let undos: Vec<_> = undos.collect();
        if undos.is_empty() {
            return None;
        }
        // Without a runtime nothing can be sent, and the charges stay.
        let runtime = Handle::try_current().ok()?;
        let decider = Arc::clone(decider);
        Some(runtime.spawn(async move {
            for (undo, charge) in undos {
                let deadline = Instant::now() + UNDO_TIMEOUT;
                // If it fails, too much stays charged, never too little.
                match undo {
                    PartUndo::Charges(request) => {
                        let _ = decider.servers.send(*request, deadline).await;
                    }
                    PartUndo::Record(key) => {
                        let _ = decider.servers.unlink(&[key], deadline).await;
                    }
                }
                // Denials that the charge caused may no longer hold.
                decider.record_charge(&charge);
            }
        }))
    }
}

impl Drop for PendingCharges<'_, '_> {
    fn drop(&mut self) {
        self.start_undo();
    }
}
