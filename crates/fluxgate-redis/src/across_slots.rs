//! Decides a request whose checks are in several slots of a cluster.
//!
//! A hold has a record in each slot, written by the call that charges there and deleted if
//! the charge is undone. The list of them is written once all enforced checks have passed,
//! before anybody learns the id.

mod charges;
mod parts;

use std::cmp::Reverse;
use std::sync::Arc;

use fluxgate_core::store::{Check, Checks, Group, Micros, Reason, Retry, Verdict, Verdicts};
use fluxgate_core::{StoreError, Timestamp};
use tokio::time::Instant;

use crate::decider::Decider;
use crate::error::error;
use crate::holds;
use crate::lease::is_leasable;
use crate::near_cache::Wanted;
use charges::PendingCharges;
pub(crate) use parts::RecentDenials;
use parts::{Part, held, life_of, parts_by_slot};

/// Decides the enforced checks slot by slot and undoes their charges if a later
/// slot denies; then decides each shadow rule.
pub(crate) async fn decide(
    decider: &Arc<Decider>,
    recent_denials: &RecentDenials,
    checks: &Checks<'_>,
    deadline: Instant,
) -> Result<Verdicts, StoreError> {
    let mode = checks.mode();
    let is_exact = !is_leasable(checks);
    let parts = parts_by_slot(checks, &decider.naming);
    let is_enforced = |part: &&Part| part.group == Group::ENFORCED;
    let mut verdicts = vec![None; checks.list().len()];
    let mut charges = PendingCharges::new(decider);
    let with_checks = |part| (part, Part::checks(part, checks, mode));
    let mut enforced: Vec<_> = parts.iter().filter(is_enforced).map(with_checks).collect();
    if enforced.len() > 1 {
        // Those that denied last come first: if they deny again, there is nothing
        // to undo.
        enforced.sort_by_cached_key(|(_, asks)| Reverse(recent_denials.last(asks)));
    }
    // A request that is known to be denied is not charged anywhere.
    let known = enforced.iter();
    let known = known.map(|(_, asks)| decider.known_denial(asks, deadline));
    let known: Vec<_> = known.collect();
    let mut denied = checks.is_refused() || known.iter().any(Option::is_some);
    for ((part, asks), known) in enforced.into_iter().zip(known) {
        if let Some(denial) = known {
            recent_denials.record(&asks);
            part.scatter(&denial, &mut verdicts);
            continue;
        }
        // Once one has denied, the others only report whether they would, too, and charge what
        // is charged in any case.
        let (asks, wanted) = if denied {
            (part.refused_checks(checks), Wanted::Anything)
        } else {
            (asks, Wanted::Denial)
        };
        let decided = match decider
            .ask(&asks, part.place(is_exact), None, wanted, deadline)
            .await
        {
            Ok(decided) => decided,
            // The request is denied whatever this part would have answered.
            Err(_) if denied => {
                part.scatter(&as_if_unused(&asks), &mut verdicts);
                continue;
            }
            Err(cause) => {
                // It may have been charged.
                decider.record_charge(&decider.charge_of(&asks));
                charges.undo(deadline).await;
                return Err(cause);
            }
        };
        let passes = decided.passes();
        part.scatter(&decided.verdicts, &mut verdicts);
        if !passes {
            recent_denials.record(&asks);
        }
        if passes && !denied {
            if let Some(answer) = decided.answer {
                charges.push(part, asks, answer);
            }
        } else if !denied {
            denied = true;
            // Not charged after all: report what is left without the charge.
            for (part, answer) in charges.parts() {
                let peeks = part.checks(checks, mode.peeking());
                part.scatter_undone(&answer.verdicts(&peeks)?, checks, &mut verdicts);
            }
            charges.undo(deadline).await;
        }
    }
    let hold = held(checks).filter(|_| !denied);
    if let Some(hold) = hold {
        // Whoever learns the id of the hold finds its parts. The shadow rules among them
        // may come to nothing.
        let list = parts.iter();
        let list = list.filter_map(|part| part.recorded(checks, &decider.naming));
        let list: Vec<_> = list.collect();
        // As long as the request waits it can be cancelled, even if the hold has ended.
        let delays = verdicts.iter().flatten().map(|verdict| verdict.delay);
        let life = delays.fold(life_of(checks, hold), Micros::max);
        if let Err(cause) = holds::write_list(decider, hold.id, &list, life, deadline).await {
            charges.undo(deadline).await;
            return Err(cause);
        }
    }
    charges.keep();
    if !denied {
        for part in parts.iter().filter(|part| !is_enforced(part)) {
            let asks = part.checks(checks, mode);
            // The request has passed. A shadow rule whose node is gone counts as
            // one that would have let it pass.
            let decided = decider.ask(&asks, part.place(is_exact), None, Wanted::Denial, deadline);
            match decided.await {
                Ok(decided) => part.scatter(&decided.verdicts, &mut verdicts),
                Err(_) => part.scatter(&as_if_unused(&asks), &mut verdicts),
            }
        }
    }
    if let Some(hold) = hold
        && !is_any_charged(checks, &verdicts)
    {
        holds::delete_list(decider, hold.id, deadline).await;
    }
    let list = checks.list();
    let is_decided = |check: &&Check<'_>| !denied || check.group == Group::ENFORCED;
    let decided = list.iter().filter(is_decided).count();
    let verdicts: Option<Verdicts> = verdicts.into_iter().take(decided).collect();
    verdicts.ok_or_else(|| error(Reason::BAD_RESPONSE, "not every check was answered"))
}

/// Returns whether a request that passed charged anything: with enforced checks of any cost
/// it did, and else if a shadow rule passed.
fn is_any_charged(checks: &Checks<'_>, verdicts: &[Option<Verdict>]) -> bool {
    let costs = checks.list().iter().enumerate();
    let mut costs = costs.filter(|(_, check)| check.cost > 0);
    costs.any(|(_, check)| {
        let mut group = checks.list().iter().zip(verdicts);
        group.all(|(other, verdict)| {
            other.group != check.group || verdict.is_none_or(|verdict| verdict.passes())
        })
    })
}

/// Returns the verdicts of bands whose node does not answer: those of bands that
/// nothing was charged to.
fn as_if_unused(checks: &Checks<'_>) -> Verdicts {
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
