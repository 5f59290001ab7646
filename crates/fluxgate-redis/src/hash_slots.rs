//! Decides a request whose checks are in several hash slots of a cluster.
//!
//! A hold has a record in each hash slot, written by the call that charges there, and deleted
//! if the charge is undone. The list of the records is written when all enforced checks have
//! passed, before the caller gets the id.

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
use crate::near_cache::LookupScope;
use charges::PendingCharges;
pub(crate) use parts::RecentDenials;
use parts::{RequestPart, hold_of, max_life_of, split_by_hash_slot};

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
