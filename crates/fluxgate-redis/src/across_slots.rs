//! A request whose rules are in several slots of a cluster.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::{
    Check, Checks, Group, Micros, Reason, Retry, StoreError, Timestamp, Verdict, Verdicts,
};
use tokio::time::Instant;

use crate::codec::Request;
use crate::error::error;
use crate::near_cache::{Charge, Wanted};
use crate::parts::{Part, parts_by_slot};
use crate::store::Inner;
use crate::taken::Taken;

/// How long a charge may take to be taken back. It has nothing to do with the
/// deadline of the request, which may be over.
const UNDO_TIMEOUT: Duration = Duration::from_millis(500);

impl Inner {
    /// Decides checks that may be in several slots of a cluster: the enforced
    /// ones slot by slot, given back if a later one refuses; then each shadow
    /// rule.
    pub(crate) async fn decide_by_parts(
        self: &Arc<Self>,
        checks: &Checks<'_>,
        deadline: Instant,
    ) -> Result<Verdicts, StoreError> {
        let mode = checks.mode();
        let parts = parts_by_slot(checks, &self.naming);
        let is_enforced = |part: &&Part| part.group == Group::ENFORCED;
        let mut verdicts = vec![None; checks.list().len()];
        let mut taken = Taken::new(self);
        let enforced = self.in_order(parts.iter().filter(is_enforced), checks);
        // Nothing is charged for what is known to be refused.
        let known = enforced.iter();
        let known = known.map(|(_, asks)| self.known_denial(asks, deadline));
        let known: Vec<_> = known.collect();
        let mut refused = known.iter().any(Option::is_some);
        for ((part, asks), known) in enforced.into_iter().zip(known) {
            if let Some(denial) = known {
                self.refusals.note(&asks);
                part.place(&denial, &mut verdicts);
                continue;
            }
            // Once one has refused, the others only tell whether they would too.
            let (asks, wanted) = if refused {
                (part.checks(checks, mode.peeking()), Wanted::Anything)
            } else {
                (asks, Wanted::Denial)
            };
            let asked = match self.ask(&asks, part.slot, None, wanted, deadline).await {
                Ok(asked) => asked,
                // Denied it is, whatever this one would have said.
                Err(_) if refused => {
                    part.place(&unasked(&asks), &mut verdicts);
                    continue;
                }
                Err(cause) => {
                    // Nobody knows whether it was charged.
                    self.note_charge(&self.charge_of(&asks));
                    taken.give_back(deadline).await;
                    return Err(cause);
                }
            };
            let passes = asked.passes();
            part.place(&asked.verdicts, &mut verdicts);
            if !passes {
                self.refusals.note(&asks);
            }
            if passes && !refused {
                if let Some(answer) = asked.answer {
                    taken.push(part, asks, answer);
                }
            } else if !refused {
                refused = true;
                // Not charged after all: tell what is there without it.
                for (part, answer) in taken.parts() {
                    let peeks = part.checks(checks, mode.peeking());
                    part.place(&answer.verdicts(&peeks)?, &mut verdicts);
                }
                taken.give_back(deadline).await;
            }
        }
        taken.keep();
        if !refused {
            for part in parts.iter().filter(|part| !is_enforced(part)) {
                let asks = part.checks(checks, mode);
                // The request has passed. What a shadow rule would have said
                // when its node is gone is as good as that it would have passed.
                let asked = self.ask(&asks, part.slot, None, Wanted::Denial, deadline);
                match asked.await {
                    Ok(asked) => part.place(&asked.verdicts, &mut verdicts),
                    Err(_) => part.place(&unasked(&asks), &mut verdicts),
                }
            }
        }
        let list = checks.list();
        let is_decided = |check: &&Check<'_>| !refused || check.group == Group::ENFORCED;
        let decided = list.iter().filter(is_decided).count();
        let verdicts: Option<Verdicts> = verdicts.into_iter().take(decided).collect();
        verdicts.ok_or_else(|| error(Reason::BAD_RESPONSE, "not every check was answered"))
    }

    /// Parts with their checks: those that refused last come first, for if they
    /// refuse again nothing has to be given back.
    fn in_order<'p, 'r>(
        &self,
        parts: impl Iterator<Item = &'p Part>,
        checks: &Checks<'r>,
    ) -> Vec<(&'p Part, Checks<'r>)> {
        let with_checks = |part: &'p Part| (part, part.checks(checks, checks.mode()));
        let mut parts: Vec<_> = parts.map(with_checks).collect();
        if parts.len() > 1 {
            parts.sort_by_cached_key(|(_, asks)| Reverse(self.refusals.last(asks)));
        }
        parts
    }

    /// Takes a charge back, in its own time: nobody waits for it to the end.
    pub(crate) async fn undo(&self, undo: Request, charge: Charge, slot: u16) {
        // If it fails, too much stays charged, and never too little.
        let _ = self.send(undo, slot, Instant::now() + UNDO_TIMEOUT).await;
        // Who was refused because of it need not be any longer.
        self.note_charge(&charge);
    }
}

/// What bands say that cannot be asked: as if nobody had used them.
fn unasked(checks: &Checks<'_>) -> Verdicts {
    let verdict = |check: &Check<'_>| {
        let capacity = check.band.limit().capacity();
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
