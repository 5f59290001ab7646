//! Decides checks that one server holds: from the near cache where it knows a
//! denial, else by the script.

use std::sync::Arc;

use fluxgate_core::StoreError;
use fluxgate_core::store::{Checks, Group, Verdict, Verdicts};
use tokio::time::Instant;

use crate::codec::{Answer, HoldPart, Request, WantedPermit, has_slots};
use crate::keys::KeyNaming;
use crate::lease::is_leasable;
use crate::lease_client::LeaseClient;
use crate::near_cache::{Charge, NearCache, Wanted};
use crate::servers::Servers;

#[derive(Debug)]
pub(crate) struct Decider {
    pub(crate) servers: Arc<Servers>,
    pub(crate) naming: KeyNaming,
    near_cache: Option<NearCache>,
    pub(crate) leases: LeaseClient,
}

/// Where checks are decided. The default is a single server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place<'p> {
    pub(crate) slot: u16,
    /// Where the record of their hold goes, if they are not known to be all of it.
    pub(crate) part: Option<&'p HoldPart>,
    /// Whether units on lease cannot decide the request, so that none are asked for.
    pub(crate) is_exact: bool,
}

/// The verdicts on some checks.
pub(crate) struct Decided {
    pub(crate) verdicts: Verdicts,
    /// The script's answer; `None` if the near cache knew the verdicts.
    pub(crate) answer: Option<Answer>,
    /// What the request is charged if it passes.
    charge: Charge,
}

impl Decided {
    pub(crate) fn passes(&self) -> bool {
        self.verdicts.iter().all(Verdict::passes)
    }

    /// Returns whether all enforced ones of these checks pass.
    fn enforced_pass(&self, checks: &Checks<'_>) -> bool {
        let mut verdicts = self.verdicts.iter().zip(checks.list());
        verdicts.all(|(verdict, check)| check.group != Group::ENFORCED || verdict.passes())
    }
}

impl Decider {
    pub(crate) fn new(servers: Arc<Servers>, naming: KeyNaming, near_cache: bool) -> Self {
        Self {
            servers,
            naming,
            near_cache: near_cache.then(NearCache::default),
            leases: LeaseClient::default(),
        }
    }

    /// Decides all checks of a request on a single server, and acquires a permit if
    /// one is wanted.
    pub(crate) async fn decide(
        &self,
        checks: &Checks<'_>,
        permit: Option<WantedPermit<'_>>,
        deadline: Instant,
    ) -> Result<Decided, StoreError> {
        let place = Place::default();
        let decided = self
            .ask(checks, place, permit, Wanted::Denial, deadline)
            .await;
        match &decided {
            Ok(decided) if decided.enforced_pass(checks) => self.record_charge(&decided.charge),
            Ok(_) => {}
            // A request without an answer may have been charged.
            Err(_) => self.record_charge(&self.charge_of(checks)),
        }
        decided
    }

    /// Decides checks of one slot: asks the near cache first, then the server.
    pub(crate) async fn ask(
        &self,
        checks: &Checks<'_>,
        place: Place<'_>,
        permit: Option<WantedPermit<'_>>,
        wanted: Wanted,
        deadline: Instant,
    ) -> Result<Decided, StoreError> {
        let question = match self.near_cache_for(checks) {
            Some(near_cache) => {
                // When the request came: a moment too early is on the safe side.
                let asked = deadline - self.servers.timeout();
                let question = near_cache.question(checks, asked);
                if let Some(verdicts) = near_cache.answer(&question, checks, wanted) {
                    return Ok(Decided {
                        verdicts,
                        answer: None,
                        charge: Charge::default(),
                    });
                }
                Some((near_cache, question))
            }
            None => None,
        };
        let mut request = match permit {
            Some(permit) => Request::decide_with_permit(checks, &self.naming, permit),
            None => Request::decide(checks, &self.naming, place.part),
        };
        let lease_requests = if place.is_exact {
            None
        } else {
            self.leases
                .add_lease_requests(checks, &mut request, &self.naming)
        };
        let answer = self.servers.send(request, place.slot, deadline).await?;
        let mut verdicts = answer.verdicts(checks)?;
        if let Some(sent) = lease_requests {
            sent.record_answer(checks, &answer, &mut verdicts)?;
        }
        let charge = match &question {
            Some((near_cache, question)) => {
                near_cache.keep(question, checks, &answer, &verdicts, wanted);
                question.charge(checks)
            }
            None => self.charge_of(checks),
        };
        Ok(Decided {
            verdicts,
            answer: Some(answer),
            charge,
        })
    }

    /// Returns the denial of these checks, if the near cache knows one.
    pub(crate) fn known_denial(&self, checks: &Checks<'_>, deadline: Instant) -> Option<Verdicts> {
        let near_cache = self.near_cache_for(checks)?;
        let asked = deadline - self.servers.timeout();
        if near_cache.has_expired(asked) {
            return None;
        }
        let question = near_cache.question(checks, asked);
        near_cache.answer(&question, checks, Wanted::Denial)
    }

    /// Returns the near cache, unless a denial may end early or charges units: slots are given
    /// back at any time, and units may be granted.
    fn near_cache_for(&self, checks: &Checks<'_>) -> Option<&NearCache> {
        let near_cache = self.near_cache.as_ref();
        let is_charged_anyway = checks.charges_always();
        near_cache.filter(|_| !is_charged_anyway && !has_slots(checks) && !is_leasable(checks))
    }

    /// Returns what a request is charged, for [`Decider::record_charge`].
    pub(crate) fn charge_of(&self, checks: &Checks<'_>) -> Charge {
        let near_cache = self.near_cache.as_ref();
        let charge = near_cache.map(|near_cache| near_cache.charge_of(checks));
        charge.unwrap_or_default()
    }

    /// Keeps the near cache from hiding a charge.
    pub(crate) fn record_charge(&self, charge: &Charge) {
        if let Some(near_cache) = &self.near_cache {
            near_cache.record(charge);
        }
    }

    /// Empties the near cache, and forgets refusals: units were given back, so denials may
    /// not hold.
    pub(crate) fn clear_near_cache(&self) {
        if let Some(near_cache) = &self.near_cache {
            near_cache.clear();
        }
        self.leases.table.forget_refusals();
    }
}
