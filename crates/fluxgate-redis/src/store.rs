//! The store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fluxgate_core::store::{
    Charged, Checks, Group, HoldId, IdentityPart, KeptReservation, Micros, Mode, PartHash, Settled,
    Settlement, Subject, Verdict, Verdicts, WaitPermit,
};
use fluxgate_core::{Band, Store, StoreError, Timestamp};
use tokio::time::Instant;

use crate::breaker::BreakerState;
use crate::codec::Request;
use crate::decider::Decider;
use crate::deployment_secret::{self, DeploymentSecret};
use crate::event_log::EventLog;
use crate::hash_slots::{self, RecentDenials};
use crate::heartbeats::Heartbeats;
use crate::holds;
use crate::lease::LeaseCounts;
use crate::lease_keeper;
use crate::record::Record;
use crate::rule_store::RuleStore;
use crate::servers::Servers;
use crate::usage_record::UsageRecord;
use crate::wait_permits::WaitPermits;

/// A store in Redis, Valkey or a cluster of them, which several processes share.
///
/// The server's clock counts. A decision takes one round trip; decisions that are ready at the
/// same moment share it. Clones are the same store.
#[derive(Clone, Debug)]
pub struct RedisStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    decider: Arc<Decider>,
    recent_denials: RecentDenials,
    /// `None` if the number of waiting requests is not bounded.
    waits: Option<Arc<WaitPermits>>,
}

impl RedisStore {
    pub(crate) fn new(decider: Decider, waits: Option<Arc<WaitPermits>>) -> Self {
        Self(Arc::new(Inner {
            decider: Arc::new(decider),
            recent_denials: RecentDenials::default(),
            waits,
        }))
    }

    /// Checks that the server answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.servers().ping(self.servers().deadline()).await
    }

    /// Returns the rule sets stored on the same server.
    pub fn rule_store(&self) -> RuleStore {
        let decider = &self.0.decider;
        RuleStore::new(Arc::clone(&decider.servers), &decider.naming.prefix)
    }

    /// Returns the secret that all instances share, from which names of identities are made. It is
    /// a random value, created on the server by the first instance that asks. `known` is one that
    /// this instance has already got: it is written again if the server has lost it.
    pub async fn deployment_secret(
        &self,
        known: Option<&DeploymentSecret>,
    ) -> Result<DeploymentSecret, StoreError> {
        let decider = &self.0.decider;
        deployment_secret::fetch(&decider.servers, &decider.naming.prefix, known).await
    }

    /// Returns what the instances know of identities.
    pub fn usage_record(&self) -> UsageRecord {
        let decider = &self.0.decider;
        UsageRecord::new(Arc::clone(&decider.servers), &decider.naming.prefix)
    }

    /// Returns the record of what happened, which is kept for `keep`. `instance` must be an id that
    /// no other process has, nor this one before a restart.
    pub fn record(&self, instance: &str, keep: Duration) -> Record {
        let decider = &self.0.decider;
        let servers = Arc::clone(&decider.servers);
        Record::new(servers, &decider.naming.prefix, instance, keep)
    }

    /// Returns the heartbeats of the instances that share this store.
    pub fn heartbeats(&self) -> Heartbeats {
        let decider = &self.0.decider;
        Heartbeats::new(Arc::clone(&decider.servers), &decider.naming.prefix)
    }

    /// Returns the log of events of the instances that share this store.
    pub fn event_log(&self) -> EventLog {
        EventLog::new(Arc::clone(&self.0.decider))
    }

    /// Returns the state of the server's circuit breaker. For a cluster, returns the state of a
    /// breaker that is not closed, if there is one.
    pub fn breaker_state(&self) -> BreakerState {
        self.servers().breaker_state()
    }

    /// Returns how often a server without the script has loaded it, including the first time.
    pub fn script_reloads(&self) -> u64 {
        self.servers().events.script_reloads.load(Ordering::Relaxed)
    }

    /// Returns how often the script was missing on a server and could not be loaded.
    pub fn script_reload_failures(&self) -> u64 {
        self.servers()
            .events
            .script_reload_failures
            .load(Ordering::Relaxed)
    }

    /// Returns how often the sentinels have named another primary since the first query; 0
    /// without sentinels.
    pub fn failovers(&self) -> u64 {
        self.servers().events.failovers.load(Ordering::Relaxed)
    }

    /// Returns what has happened to leases since the store was created.
    pub fn lease_counts(&self) -> LeaseCounts {
        self.0.decider.leases.table.counts()
    }

    /// Returns all units on lease to the server, and requests no more. Call it before the program
    /// ends: other instances cannot use units that are not returned until their lease ends.
    pub async fn return_leases(&self) {
        lease_keeper::return_all(&self.0.decider).await;
    }

    pub(crate) fn servers(&self) -> &Servers {
        &self.0.decider.servers
    }
}

impl Store for RedisStore {
    fn time(&self) -> Timestamp {
        self.servers().estimated_time()
    }

    fn hash_part(&self, part: &IdentityPart<'_>) -> Option<PartHash> {
        self.0.decider.naming.hash_part(part)
    }

    /// Decides by units on lease, or by a denial in the near cache.
    fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
        let decider = &self.0.decider;
        if decider.leases.decide(checks, verdicts) {
            return true;
        }
        let Some(denial) = decider.cached_denial(checks, decider.servers.deadline()) else {
            return false;
        };
        *verdicts = denial;
        true
    }

    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        let decider = &self.0.decider;
        let deadline = decider.servers.deadline();
        let decided = if decider.servers.is_cluster(deadline).await? {
            // Boxed, so that a decision on a single server reserves no space for it.
            Box::pin(self.0.decide_by_hash_slot(checks, deadline)).await
        } else {
            Ok(decider.decide(checks, None, deadline).await?.verdicts)
        };
        if decider.leases.needs_keeper() {
            lease_keeper::start_keeper(decider);
        }
        decided
    }

    async fn decide_with_permit(
        &self,
        checks: &Checks<'_>,
    ) -> Result<(Verdicts, WaitPermit), StoreError> {
        // A request that is denied whatever its checks say does not wait.
        let may_wait = checks.mode() == Mode::Take && checks.may_wait() && !checks.is_refused();
        let Some(waits) = self.0.waits.as_ref().filter(|_| may_wait) else {
            return Ok((self.decide(checks).await?, WaitPermit::unbounded()));
        };
        let servers = self.servers();
        let deadline = servers.deadline();
        if servers.is_cluster(deadline).await? {
            // Boxed, so that requests that cannot wait reserve no space for them.
            Box::pin(self.0.acquire_and_decide(checks, waits, deadline)).await
        } else {
            Box::pin(self.0.decide_and_acquire(checks, waits, deadline)).await
        }
    }

    async fn begin_wait(&self, longest: Duration) -> Result<Option<WaitPermit>, StoreError> {
        match &self.0.waits {
            Some(waits) => Ok(waits.acquire(longest).await?.map(WaitPermit::held_by)),
            None => Ok(Some(WaitPermit::unbounded())),
        }
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> Result<Verdicts, StoreError> {
        let (servers, naming) = (self.servers(), &self.0.decider.naming);
        self.0.decider.forget_denials();
        let request = Request::refund(subject, bands, units, naming);
        let answer = servers.send(request, servers.deadline()).await;
        // Again: a denial from before the refund may have been on its way.
        self.0.decider.forget_denials();
        answer?.states(bands.iter())
    }

    async fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> Result<(), StoreError> {
        let (servers, naming) = (self.servers(), &self.0.decider.naming);
        if bands.is_empty() || charged.is_empty() {
            return Ok(());
        }
        let request = Request::cancel(subject, bands, units, charged, naming);
        let answer = servers.send(request, servers.deadline()).await;
        // Denials from before may no longer hold, including those on their way.
        self.0.decider.forget_denials();
        answer.map(drop)
    }

    async fn keep_reservation(
        &self,
        reservation: &KeptReservation<'_>,
    ) -> Result<bool, StoreError> {
        holds::keep_reservation(&self.0.decider, reservation).await
    }

    async fn cancel_reservation(&self, id: HoldId) -> Result<bool, StoreError> {
        holds::cancel_reservation(&self.0.decider, id).await
    }

    async fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        holds::settle(&self.0.decider, hold, settlement).await
    }

    async fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        holds::renew(&self.0.decider, holds).await
    }

    async fn reset(&self, subject: Subject<'_>, bands: &[Band]) -> Result<u64, StoreError> {
        let (servers, naming) = (self.servers(), &self.0.decider.naming);
        let keys = naming.keys(subject, bands);
        self.0.decider.forget_denials();
        let deleted = servers.unlink(&keys, servers.deadline()).await;
        self.0.decider.forget_denials();
        deleted
    }

    async fn on_lease(&self, subject: Subject<'_>, bands: &[Band]) -> Result<Vec<u64>, StoreError> {
        lease_keeper::units_out(&self.0.decider, subject, bands).await
    }

    async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
        let (servers, naming) = (self.servers(), &self.0.decider.naming);
        self.0.decider.forget_denials();
        let deleted = servers.unlink_matching(&naming.pattern(rule)).await;
        self.0.decider.forget_denials();
        deleted
    }
}

impl Inner {
    async fn decide_by_hash_slot(
        &self,
        checks: &Checks<'_>,
        deadline: Instant,
    ) -> Result<Verdicts, StoreError> {
        hash_slots::decide(&self.decider, &self.recent_denials, checks, deadline).await
    }

    /// Decides on a single server, where the script takes a permit in the same step if the
    /// request has to wait.
    async fn decide_and_acquire(
        &self,
        checks: &Checks<'_>,
        waits: &Arc<WaitPermits>,
        deadline: Instant,
    ) -> Result<(Verdicts, WaitPermit), StoreError> {
        let permit = waits.new_permit();
        let permit_request = Some(waits.request_for(&permit));
        let decision = self
            .decider
            .decide(checks, permit_request, deadline)
            .await?;
        let answer = decision.answer.as_ref();
        let has_permit = answer.is_some_and(|answer| answer.permit == Some(true));
        let permit = if has_permit {
            WaitPermit::held_by(permit)
        } else {
            permit.disarm();
            WaitPermit::unbounded()
        };
        Ok((decision.verdicts, permit))
    }

    /// Decides on a cluster, where the permits have a hash slot of their own. A request that
    /// passes at once needs none; one that could wait takes a permit and is decided again. A
    /// denial that charges units must come last, so a request with rules that charge always is
    /// only peeked at before.
    async fn acquire_and_decide(
        &self,
        checks: &Checks<'_>,
        waits: &Arc<WaitPermits>,
        deadline: Instant,
    ) -> Result<(Verdicts, WaitPermit), StoreError> {
        let at_once = checks.in_mode(Mode::TakeNow);
        let verdicts = if checks.charges_always() {
            let peek = checks.in_mode(Mode::PeekNow);
            self.decide_by_hash_slot(&peek, deadline).await?
        } else {
            self.decide_by_hash_slot(&at_once, deadline).await?
        };
        let longest = longest_wait(checks, &verdicts);
        let permit = match longest.filter(|longest| !longest.is_zero()) {
            Some(longest) => waits.acquire(longest).await?,
            None => None,
        };
        let deadline = self.decider.servers.deadline();
        let Some(permit) = permit else {
            let verdicts = if checks.charges_always() {
                self.decide_by_hash_slot(&at_once, deadline).await?
            } else {
                verdicts
            };
            return Ok((verdicts, WaitPermit::unbounded()));
        };
        let verdicts = self.decide_by_hash_slot(checks, deadline).await?;
        let has_to_wait = verdicts.iter().any(|verdict| verdict.delay > Micros::ZERO);
        // An unneeded permit is released on drop.
        let permit = has_to_wait.then(|| WaitPermit::held_by(permit));
        Ok((verdicts, permit.unwrap_or(WaitPermit::unbounded())))
    }
}

/// Returns how long a request that was denied at once has to wait at most, if all bands that
/// deny it let it wait; zero if none denies.
fn longest_wait(checks: &Checks<'_>, verdicts: &[Verdict]) -> Option<Duration> {
    let mut longest = Duration::ZERO;
    for (check, verdict) in checks.list().iter().zip(verdicts) {
        if check.group != Group::ENFORCED || verdict.passes() {
            continue;
        }
        let rate = check.band.limit().rate();
        let wait = verdict.retry_after.after()?;
        let may_wait = rate.shape() || rate.max_wait().is_some_and(|max| wait <= max);
        longest = longest.max(may_wait.then(|| wait.as_duration())?);
    }
    Some(longest)
}
