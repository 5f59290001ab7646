//! The store: what a limiter sees of Redis.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::{
    Band, Charged, Checks, Group, Micros, Mode, Store, StoreError, Subject, Verdict, Verdicts,
    WaitPermit,
};
use redis::Value;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::batch::{Batcher, bytes_of};
use crate::breaker::BreakerState;
use crate::builder::{ConnectError, RedisStoreBuilder};
use crate::cluster::{Cluster, slot_of};
use crate::codec::{Answer, Call, PlaceWanted, Request};
use crate::endpoint::unexpected;
use crate::error::{CallError, timeout as no_answer};
use crate::events::Events;
use crate::key_name::Naming;
use crate::near_cache::{Charge, NearCache, Wanted};
use crate::node::{Node, Work};
use crate::reason;
use crate::refusals::Refusals;
use crate::rule_store::RuleStore;
use crate::script::TimeSource;
use crate::sweep::sweep;
use crate::waits::{PlaceId, WaitPlace, Waits};

/// State that several processes share in Redis, Valkey or a cluster of them.
///
/// Time is the server's. A decision takes one round trip; those that are ready
/// at the same moment share it. Clones are the same store.
#[derive(Clone, Debug)]
pub struct RedisStore(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    servers: OnceCell<Servers>,
    first: First,
    pub(crate) naming: Naming,
    deadline: Duration,
    near_cache: Option<NearCache>,
    pub(crate) refusals: Refusals,
    waits: Option<Waits>,
    time: TimeSource,
    events: Arc<Events>,
}

/// What is known before a server has been asked what it is.
#[derive(Debug)]
pub(crate) enum First {
    /// One server, or one behind sentinels.
    One(Arc<Node>),
    /// A cluster.
    Cluster(Arc<Cluster>),
    /// One or the other, as the server says.
    Ask(Arc<Node>, Arc<Cluster>),
}

/// Where the state is.
#[derive(Debug)]
enum Servers {
    One(Arc<Batcher>),
    Cluster(Arc<Cluster>),
}

/// What came of asking for one part of a request.
pub(crate) struct Asked {
    pub(crate) verdicts: Verdicts,
    /// `None` if nobody was asked, because the denial was known.
    pub(crate) answer: Option<Answer>,
}

impl Asked {
    pub(crate) fn passes(&self) -> bool {
        self.verdicts.iter().all(Verdict::passes)
    }

    /// Whether all enforced ones of these checks pass.
    fn enforced_pass(&self, checks: &Checks<'_>) -> bool {
        let mut verdicts = self.verdicts.iter().zip(checks.list());
        verdicts.all(|(verdict, check)| check.group != Group::ENFORCED || verdict.passes())
    }
}

impl RedisStore {
    /// Connects to a server, or to the cluster it belongs to.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder([url]).connect().await
    }

    /// Starts with these servers: one, some nodes of a cluster, or sentinels.
    pub fn builder<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(urls)
    }

    pub(crate) fn new(
        first: First,
        naming: Naming,
        deadline: Duration,
        near_cache: bool,
        waits: Option<Waits>,
        time: TimeSource,
        events: Arc<Events>,
    ) -> Self {
        Self(Arc::new(Inner {
            servers: OnceCell::new(),
            first,
            naming,
            deadline,
            near_cache: near_cache.then(NearCache::default),
            refusals: Refusals::default(),
            waits,
            time,
            events,
        }))
    }

    /// Asks the server for a sign of life.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.ping_within(Duration::ZERO).await
    }

    /// Within this time, or that of a decision if it is longer.
    pub(crate) async fn ping_within(&self, span: Duration) -> Result<(), StoreError> {
        let deadline = Instant::now() + span.max(self.0.deadline);
        match self.0.servers(deadline).await? {
            Servers::One(batcher) => {
                let ping = redis::cmd("PING");
                let reply = batcher.node().command(&ping, false, deadline).await;
                reply.map(drop).map_err(CallError::into_store_error)
            }
            Servers::Cluster(cluster) => cluster.refresh(deadline).await,
        }
    }

    /// The rule sets that are kept in the same place.
    pub fn rule_store(&self) -> RuleStore {
        RuleStore::new(self.clone(), self.0.naming.prefix())
    }

    /// Does something where a key is.
    pub(crate) async fn perform(
        &self,
        work: &Work<'_>,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        self.0.perform(work, key, deadline).await
    }

    /// The server that has a key.
    pub(crate) async fn node_of(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Node>, StoreError> {
        match self.0.servers(deadline).await? {
            Servers::One(batcher) => Ok(Arc::clone(batcher.node())),
            Servers::Cluster(cluster) => cluster.node_of(slot_of(key), deadline).await,
        }
    }

    /// Whether the server is being asked at all. Of a cluster, that of a node
    /// that is not, if there is one.
    pub fn breaker_state(&self) -> BreakerState {
        match (self.0.servers.get(), &self.0.first) {
            (Some(Servers::One(batcher)), _) => batcher.node().breaker_state(),
            (Some(Servers::Cluster(cluster)), _) => cluster.breaker_state(),
            (None, First::One(node) | First::Ask(node, _)) => node.breaker_state(),
            (None, First::Cluster(cluster)) => cluster.breaker_state(),
        }
    }

    /// Returns how often a server that did not have the script has loaded it,
    /// the first time included.
    pub fn script_reloads(&self) -> u64 {
        self.0.events.script_reloads()
    }

    /// Returns how often the sentinels have named another primary since this
    /// store first asked them. 0 without sentinels.
    pub fn failovers(&self) -> u64 {
        self.0.events.failovers()
    }

    /// A place among those who wait, in all processes together, for at most
    /// `longest`. `None` if there are too many; without a bound there never are.
    pub async fn begin_wait(&self, longest: Duration) -> Result<Option<WaitPlace>, StoreError> {
        let Some(waits) = &self.0.waits else {
            return Ok(Some(WaitPlace::unbounded()));
        };
        let id = waits.next_id();
        // From here on it is given back, also if nobody hears whether it was got.
        let place = WaitPlace::new(self.clone(), id);
        let entered = waits.enter(&id, longest, async |work, key| {
            self.0.perform(work, key, self.0.deadline()).await
        });
        if entered.await? {
            return Ok(Some(place));
        }
        place.forget();
        Ok(None)
    }

    /// Decides, and takes a place first where the request has to wait: in one step,
    /// on one server.
    async fn decide_and_enter(
        &self,
        checks: &Checks<'_>,
        waits: &Waits,
        deadline: Instant,
    ) -> Result<(Verdicts, WaitPermit), StoreError> {
        let id = waits.next_id();
        // From here on it is given back, also if nobody hears whether it was got.
        let place = WaitPlace::new(self.clone(), id);
        let wanted = Some(waits.wanted(&id));
        let asked = self
            .0
            .ask(checks, 0, wanted, Wanted::Denial, deadline)
            .await;
        let asked = self.0.noting_charge(checks, asked)?;
        let has_place = asked
            .answer
            .is_some_and(|answer| answer.place() == Some(true));
        let place = match has_place {
            true => WaitPermit::held_by(place),
            false => {
                place.forget();
                WaitPermit::unbounded()
            }
        };
        Ok((asked.verdicts, place))
    }

    /// The same on a cluster, where the places are in a slot of their own: who passes
    /// without waiting needs none, who could wait takes one and asks again.
    async fn enter_and_decide(
        &self,
        checks: &Checks<'_>,
        deadline: Instant,
    ) -> Result<(Verdicts, WaitPermit), StoreError> {
        let at_once = checks.in_mode(Mode::TakeNow);
        let verdicts = self.0.decide_by_parts(&at_once, deadline).await?;
        let longest = longest_wait(checks, &verdicts);
        let Some(longest) = longest.filter(|longest| !longest.is_zero()) else {
            return Ok((verdicts, WaitPermit::unbounded()));
        };
        let Some(place) = RedisStore::begin_wait(self, longest).await? else {
            return Ok((verdicts, WaitPermit::unbounded()));
        };
        let verdicts = self.0.decide_by_parts(checks, self.0.deadline()).await?;
        let waits = verdicts.iter().any(|verdict| verdict.delay > Micros::ZERO);
        // Dropped, it is given back.
        let place = waits.then(|| WaitPermit::held_by(place));
        Ok((verdicts, place.unwrap_or(WaitPermit::unbounded())))
    }

    /// Gives a place among the waiters back.
    pub(crate) async fn end_wait(&self, id: &PlaceId) {
        if let Some(waits) = &self.0.waits {
            let left = waits.leave(id);
            // If it fails, the place frees itself when its time is over.
            let work = Work::Command(&left);
            let _ = self.0.perform(&work, waits.key(), self.0.deadline()).await;
        }
    }
}

impl Store for RedisStore {
    async fn begin_wait(&self, longest: Duration) -> Result<Option<WaitPermit>, StoreError> {
        let place = RedisStore::begin_wait(self, longest).await?;
        Ok(place.map(WaitPermit::held_by))
    }

    /// Answers denials that the near cache knows.
    fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
        let Some(near_cache) = &self.0.near_cache else {
            return false;
        };
        let question = near_cache.question(checks, Instant::now());
        match near_cache.answer(&question, checks, Wanted::Denial) {
            Some(denial) => {
                *verdicts = denial;
                true
            }
            None => false,
        }
    }

    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        let inner = &*self.0;
        let deadline = inner.deadline();
        match inner.servers(deadline).await? {
            Servers::One(_) => inner.decide_in_one_place(checks, deadline).await,
            Servers::Cluster(_) => self.0.decide_by_parts(checks, deadline).await,
        }
    }

    async fn decide_with_permit(
        &self,
        checks: &Checks<'_>,
    ) -> Result<(Verdicts, WaitPermit), StoreError> {
        let bounded = self.0.waits.as_ref();
        let bounded = bounded.filter(|_| checks.mode() == Mode::Take && checks.may_wait());
        let Some(waits) = bounded else {
            return Ok((self.decide(checks).await?, WaitPermit::unbounded()));
        };
        let inner = &*self.0;
        let deadline = inner.deadline();
        match inner.servers(deadline).await? {
            Servers::One(_) => self.decide_and_enter(checks, waits, deadline).await,
            Servers::Cluster(_) => self.enter_and_decide(checks, deadline).await,
        }
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> Result<Verdicts, StoreError> {
        let inner = &*self.0;
        inner.forget_near();
        let request = Request::refund(subject, bands, units, &inner.naming);
        let key = inner.naming.keys(subject, bands).into_iter().next();
        let slot = key.map(|key| slot_of(&key)).unwrap_or_default();
        let answer = inner.send(request, slot, inner.deadline()).await;
        // Again: a denial from before may have been on its way.
        inner.forget_near();
        answer?.states(bands.iter())
    }

    async fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> Result<(), StoreError> {
        let inner = &*self.0;
        let Some(key) = inner.naming.keys(subject, bands).into_iter().next() else {
            return Ok(());
        };
        let request = Request::cancel(subject, bands, units, charged, &inner.naming);
        let answer = inner.send(request, slot_of(&key), inner.deadline()).await;
        // A denial from before, also one that is on its way, may not hold any more.
        inner.forget_near();
        answer.map(drop)
    }

    async fn reset(&self, subject: Subject<'_>, bands: &[Band]) -> Result<u64, StoreError> {
        let inner = &*self.0;
        let keys = inner.naming.keys(subject, bands);
        let Some(first) = keys.first() else {
            return Ok(0);
        };
        inner.forget_near();
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(&keys);
        let work = Work::Command(&unlink);
        let reply = inner.perform(&work, first, inner.deadline()).await;
        inner.forget_near();
        count_of(&reply?)
    }

    async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
        let inner = &*self.0;
        let pattern = inner.naming.pattern(rule);
        let deadline = inner.deadline();
        inner.forget_near();
        let gone = match inner.servers(deadline).await? {
            Servers::One(batcher) => sweep(batcher.node(), None, &pattern).await,
            Servers::Cluster(cluster) => {
                let mut gone = Ok(0);
                for node in cluster.nodes(deadline).await? {
                    let here = sweep(&node, Some(cluster), &pattern).await;
                    gone = gone.and_then(|before: u64| Ok(before + here?));
                }
                gone
            }
        };
        inner.forget_near();
        gone
    }
}

impl Inner {
    fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    fn forget_near(&self) {
        if let Some(near_cache) = &self.near_cache {
            near_cache.forget();
        }
    }

    /// Where the state is; the first time, a server may have to be asked.
    async fn servers(&self, deadline: Instant) -> Result<&Servers, StoreError> {
        if let Some(servers) = self.servers.get() {
            return Ok(servers);
        }
        let one = |node: &Arc<Node>| {
            let time = self.time.clone();
            Servers::One(Batcher::new(Arc::clone(node), self.deadline, time))
        };
        let servers = self.servers.get_or_try_init(async || match &self.first {
            First::One(node) => Ok(one(node)),
            First::Cluster(cluster) => Ok(Servers::Cluster(Arc::clone(cluster))),
            First::Ask(node, cluster) => Ok(if is_cluster(node, deadline).await? {
                Servers::Cluster(Arc::clone(cluster))
            } else {
                one(node)
            }),
        });
        match timeout_at(deadline, servers).await {
            Ok(servers) => servers,
            Err(_) => Err(no_answer("the server")),
        }
    }

    /// Does something where a key is.
    async fn perform(
        &self,
        work: &Work<'_>,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        match self.servers(deadline).await? {
            Servers::One(batcher) => {
                let reply = batcher.node().perform(work, false, deadline).await;
                reply.map_err(CallError::into_store_error)
            }
            Servers::Cluster(cluster) => cluster.perform(slot_of(key), work, deadline).await,
        }
    }

    pub(crate) async fn send(
        &self,
        request: Request,
        slot: u16,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        match self.servers(deadline).await? {
            Servers::One(batcher) => batcher.ask(request, deadline).await,
            Servers::Cluster(cluster) => {
                let call = Call::new(&[&request], self.time.now());
                let work = Work::Script(self.time.script(), &call);
                let reply = cluster.perform(slot, &work, deadline).await?;
                let answer = call.answers(bytes_of(&reply)?, 1)?.pop();
                answer.unwrap_or_else(|| Err(unexpected("the script")))
            }
        }
    }

    async fn decide_in_one_place(
        &self,
        checks: &Checks<'_>,
        deadline: Instant,
    ) -> Result<Verdicts, StoreError> {
        let asked = self.ask(checks, 0, None, Wanted::Denial, deadline).await;
        Ok(self.noting_charge(checks, asked)?.verdicts)
    }

    /// Notes what a request was charged that was answered so.
    fn noting_charge(
        &self,
        checks: &Checks<'_>,
        asked: Result<Asked, StoreError>,
    ) -> Result<Asked, StoreError> {
        // Nobody knows what became of a request that was not answered.
        let may_be_charged = match &asked {
            Ok(asked) => asked.enforced_pass(checks),
            Err(_) => true,
        };
        if may_be_charged {
            self.note_charge(&self.charge_of(checks));
        }
        asked
    }

    /// What a request is charged, for [`Inner::note_charge`].
    pub(crate) fn charge_of(&self, checks: &Checks<'_>) -> Charge {
        let near_cache = self.near_cache.as_ref();
        let charge = near_cache.map(|near_cache| near_cache.charge_of(checks));
        charge.unwrap_or_default()
    }

    /// Lets no answer that is remembered hide a charge.
    pub(crate) fn note_charge(&self, charge: &Charge) {
        if let Some(near_cache) = &self.near_cache {
            near_cache.note(charge);
        }
    }

    /// The denial of these checks, if it is known without asking.
    pub(crate) fn known_denial(&self, checks: &Checks<'_>, deadline: Instant) -> Option<Verdicts> {
        let near_cache = self.near_cache.as_ref()?;
        let question = near_cache.question(checks, deadline - self.deadline);
        near_cache.answer(&question, checks, Wanted::Denial)
    }

    /// Asks for checks that are in one place: the near cache first.
    pub(crate) async fn ask(
        &self,
        checks: &Checks<'_>,
        slot: u16,
        place: Option<PlaceWanted<'_>>,
        wanted: Wanted,
        deadline: Instant,
    ) -> Result<Asked, StoreError> {
        let question = match &self.near_cache {
            Some(near_cache) => {
                // When the request came: a moment too early is on the safe side.
                let question = near_cache.question(checks, deadline - self.deadline);
                if let Some(verdicts) = near_cache.answer(&question, checks, wanted) {
                    let answer = None;
                    return Ok(Asked { verdicts, answer });
                }
                Some((near_cache, question))
            }
            None => None,
        };
        let request = match place {
            Some(place) => Request::decide_with_permit(checks, &self.naming, place),
            None => Request::decide(checks, &self.naming),
        };
        let answer = self.send(request, slot, deadline).await?;
        let verdicts = answer.verdicts(checks)?;
        if let Some((near_cache, question)) = question {
            near_cache.keep(question, checks, &answer, &verdicts, wanted);
        }
        Ok(Asked {
            verdicts,
            answer: Some(answer),
        })
    }
}

/// How long a request must wait at most that was refused at once, if all that refuse
/// let it wait; nothing where nobody refuses.
fn longest_wait(checks: &Checks<'_>, verdicts: &[Verdict]) -> Option<Duration> {
    let mut longest = Duration::ZERO;
    for (check, verdict) in checks.list().iter().zip(verdicts) {
        if check.group != Group::ENFORCED || verdict.passes() {
            continue;
        }
        let rate = check.band.limit().rate();
        let wait = verdict.retry_after.after()?;
        let may_wait = rate.shape() || rate.max_wait().is_some_and(|most| wait <= most);
        longest = longest.max(may_wait.then(|| wait.as_duration())?);
    }
    Some(longest)
}

/// Whether a server is a node of a cluster. One that may not tell is none.
async fn is_cluster(node: &Arc<Node>, deadline: Instant) -> Result<bool, StoreError> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("INFO");
    match node.command(&question, false, deadline).await {
        Ok(_) => Ok(true),
        Err(CallError::Failed(cause)) if cause.message.starts_with("ERR") => Ok(false),
        Err(CallError::Failed(cause)) if cause.reason == reason::NOPERM => Ok(false),
        Err(cause) => Err(cause.into_store_error()),
    }
}

pub(crate) fn count_of(reply: &Value) -> Result<u64, StoreError> {
    match reply {
        Value::Int(count) => u64::try_from(*count).map_err(|_| unexpected("UNLINK")),
        _ => Err(unexpected("UNLINK")),
    }
}
