//! Decides checks that one server holds: from the near cache if it has a denial, else by the
//! script.

use std::sync::Arc;

use fluxgate_core::StoreError;
use fluxgate_core::store::{Checks, Group, Verdict, Verdicts};
use tokio::time::Instant;

use crate::codec::{Answer, HoldPart, PermitRequest, Request, has_slots};
use crate::keys::KeyNaming;
use crate::lease::is_leasable;
use crate::lease_client::LeaseClient;
use crate::near_cache::{Charge, LookupScope, NearCache};
use crate::servers::Servers;

#[derive(Debug)]
pub(crate) struct Decider {
    pub(crate) servers: Arc<Servers>,
    pub(crate) naming: KeyNaming,
    near_cache: Option<NearCache>,
    pub(crate) leases: LeaseClient,
}

/// How checks are decided. The default is for a request without a permit on a single server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DecideOptions<'p> {
    /// The record of their hold, if the checks may be only a part of it.
    pub(crate) part: Option<&'p HoldPart>,
    /// The permit to take if the request has to wait.
    pub(crate) permit: Option<PermitRequest<'p>>,
    /// The answers that the near cache finds and inserts.
    pub(crate) scope: LookupScope,
    /// Whether no lease is requested, because leases cannot cover the request.
    pub(crate) skips_leases: bool,
}

/// The verdicts on some checks.
pub(crate) struct ScriptDecision {
    pub(crate) verdicts: Verdicts,
    /// The script's answer; `None` if the near cache had the verdicts.
    pub(crate) answer: Option<Answer>,
    /// What the request is charged if it passes.
    charge: Charge,
}

impl ScriptDecision {
    pub(crate) fn passes(&self) -> bool {
        self.verdicts.iter().all(Verdict::passes)
    }

    /// Returns whether all enforced checks pass.
    fn passes_enforced(&self, checks: &Checks<'_>) -> bool {
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

    /// Decides all checks of a request on a single server, and acquires a permit if one is
    /// requested.
    pub(crate) async fn decide(
        &self,
        checks: &Checks<'_>,
        permit: Option<PermitRequest<'_>>,
        deadline: Instant,
    ) -> Result<ScriptDecision, StoreError> {
        let options = DecideOptions {
            permit,
            ..DecideOptions::default()
        };
        let decision = self.decide_with(checks, options, deadline).await;
        match &decision {
            Ok(decision) if decision.passes_enforced(checks) => {
                self.record_charge(&decision.charge);
            }
            Ok(_) => {}
            // A request without an answer may have been charged.
            Err(_) => self.record_charge(&self.charge_of(checks)),
        }
        decision
    }

    /// Decides checks of one hash slot: by the near cache, else by the server.
    pub(crate) async fn decide_with(
        &self,
        checks: &Checks<'_>,
        options: DecideOptions<'_>,
        deadline: Instant,
    ) -> Result<ScriptDecision, StoreError> {
        let lookup = match self.near_cache_for(checks) {
            Some(near_cache) => {
                let lookup = near_cache.lookup(checks, self.began_at(deadline));
                if let Some(verdicts) = near_cache.find(&lookup, checks, options.scope) {
                    return Ok(ScriptDecision {
                        verdicts,
                        answer: None,
                        charge: Charge::default(),
                    });
                }
                Some((near_cache, lookup))
            }
            None => None,
        };
        let mut request = match options.permit {
            Some(permit) => Request::decide_with_permit(checks, &self.naming, permit),
            None => Request::decide(checks, &self.naming, options.part),
        };
        let lease_requests = if options.skips_leases {
            None
        } else {
            self.leases
                .add_lease_requests(checks, &mut request, &self.naming)
        };
        let answer = self.servers.send(request, deadline).await?;
        let mut verdicts = answer.verdicts(checks)?;
        if let Some(sent) = lease_requests {
            sent.record_answer(checks, &answer, &mut verdicts)?;
        }
        let charge = match &lookup {
            Some((near_cache, lookup)) => {
                near_cache.insert(lookup, checks, &answer, &verdicts, options.scope);
                lookup.charge(checks)
            }
            None => self.charge_of(checks),
        };
        Ok(ScriptDecision {
            verdicts,
            answer: Some(answer),
            charge,
        })
    }

    /// Returns the denial of these checks, if the near cache has one.
    pub(crate) fn cached_denial(&self, checks: &Checks<'_>, deadline: Instant) -> Option<Verdicts> {
        let near_cache = self.near_cache_for(checks)?;
        let began_at = self.began_at(deadline);
        if near_cache.has_expired(began_at) {
            return None;
        }
        let lookup = near_cache.lookup(checks, began_at);
        near_cache.find(&lookup, checks, LookupScope::Denials)
    }

    /// Returns when a request with this deadline came. A moment too early is on the safe side.
    fn began_at(&self, deadline: Instant) -> Instant {
        deadline - self.servers.timeout
    }

    /// Returns the near cache, unless a denial charges units or may end early: slots can be
    /// released and units granted at any time.
    fn near_cache_for(&self, checks: &Checks<'_>) -> Option<&NearCache> {
        let is_cacheable = !checks.charges_always() && !has_slots(checks) && !is_leasable(checks);
        self.near_cache.as_ref().filter(|_| is_cacheable)
    }

    /// Returns what a request is charged, for [`Decider::record_charge`].
    pub(crate) fn charge_of(&self, checks: &Checks<'_>) -> Charge {
        let near_cache = self.near_cache.as_ref();
        near_cache.map_or_else(Charge::default, |near_cache| near_cache.charge_of(checks))
    }

    /// Keeps the near cache from hiding a charge.
    pub(crate) fn record_charge(&self, charge: &Charge) {
        if let Some(near_cache) = &self.near_cache {
            near_cache.record(charge);
        }
    }

    /// Empties the near cache and forgets refusals of leases: units have returned, so denials
    /// may no longer hold.
    pub(crate) fn forget_denials(&self) {
        if let Some(near_cache) = &self.near_cache {
            near_cache.clear();
        }
        self.leases.table.forget_refusals();
    }
}
