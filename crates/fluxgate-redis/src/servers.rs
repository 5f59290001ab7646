//! The servers of a deployment: a single server, or a cluster.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fluxgate_core::{Clock, StoreError, SystemClock, Timestamp};
use redis::{Cmd, FromRedisValue, Value};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::batch::{Batcher, bytes_of};
use crate::breaker::BreakerState;
use crate::cluster::{Cluster, slot_of};
use crate::codec::{Answer, Call, Request};
use crate::error::{CallError, bad_response, no_answer, unexpected};
use crate::events::Events;
use crate::node::{Node, Work};
use crate::per_runtime::PerRuntime;
use crate::reason;
use crate::script::TimeSource;

/// How many keys one step of SCAN looks at, so that no step blocks the server.
const SCAN_COUNT: usize = 1000;
/// No request waits for a step, so it may take longer than a decision.
const STEP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a command may take that no decision waits for.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a request is sent until its calendar windows contain the server's time. The
/// second time they do, unless the clock jumps or another node answers.
const MOST_DATES: usize = 4;

#[derive(Debug)]
pub(crate) struct Servers {
    configured: Configured,
    detected: OnceCell<Detected>,
    /// How long a decision may take.
    timeout: Duration,
    time: TimeSource,
    clock: SystemClock,
    /// The microseconds that the servers' clock was ahead of ours when calendar windows
    /// differed last.
    ahead: AtomicI64,
    events: Arc<Events>,
}

/// The servers as configured.
#[derive(Debug)]
pub(crate) enum Configured {
    /// One server, or the primary behind sentinels.
    Single(Arc<Node>),
    Cluster(Arc<Cluster>),
    /// Either; the server says which.
    Detect(Arc<Node>, Arc<Cluster>),
}

/// The servers once it is known whether they are a cluster.
#[derive(Debug)]
enum Detected {
    Single(Arc<Node>, PerRuntime<Batcher>),
    Cluster(Arc<Cluster>),
}

impl Configured {
    /// Returns the name for error messages.
    fn name(&self) -> String {
        match self {
            Self::Single(node) | Self::Detect(node, _) => node.name(),
            Self::Cluster(_) => "the cluster".into(),
        }
    }
}

impl Servers {
    pub(crate) fn new(
        configured: Configured,
        timeout: Duration,
        time: TimeSource,
        events: Arc<Events>,
    ) -> Self {
        Self {
            configured,
            detected: OnceCell::new(),
            timeout,
            time,
            clock: SystemClock::default(),
            ahead: AtomicI64::new(0),
            events,
        }
    }

    /// Returns how long a decision may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the deadline of a decision that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Returns the time that a test has set, if it has.
    pub(crate) fn set_time(&self) -> Option<Timestamp> {
        self.time.set_time()
    }

    /// Returns whether a test sets the time.
    pub(crate) fn has_set_time(&self) -> bool {
        self.time.set_time().is_some()
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Returns the state of the server's breaker. For a cluster, returns that of
    /// a node whose breaker is not closed, if there is one.
    pub(crate) fn breaker_state(&self) -> BreakerState {
        match (self.detected.get(), &self.configured) {
            (Some(Detected::Single(node, _)), _) => node.breaker_state(),
            (Some(Detected::Cluster(cluster)), _) => cluster.breaker_state(),
            (None, Configured::Single(node) | Configured::Detect(node, _)) => node.breaker_state(),
            (None, Configured::Cluster(cluster)) => cluster.breaker_state(),
        }
    }

    pub(crate) async fn is_cluster(&self, deadline: Instant) -> Result<bool, StoreError> {
        let detected = self.detected(deadline).await?;
        Ok(matches!(detected, Detected::Cluster(_)))
    }

    pub(crate) async fn ping(&self, deadline: Instant) -> Result<(), StoreError> {
        match self.detected(deadline).await? {
            Detected::Single(node, _) => {
                let reply = node.command(&Cmd::ping(), false, deadline).await;
                reply.map(drop).map_err(CallError::into_store_error)
            }
            Detected::Cluster(cluster) => cluster.refresh(deadline).await,
        }
    }

    /// Returns the server that holds a key.
    pub(crate) async fn node_of(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Node>, StoreError> {
        match self.detected(deadline).await? {
            Detected::Single(node, _) => Ok(Arc::clone(node)),
            Detected::Cluster(cluster) => cluster.node_of(slot_of(key), deadline).await,
        }
    }

    /// Runs a command on the server that holds `key`, and reads its reply. `what` names it in
    /// errors.
    pub(crate) async fn command<T: FromRedisValue>(
        &self,
        command: &Cmd,
        key: &str,
        what: &str,
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        let work = Work::Command(command);
        let reply = self.perform(&work, key.as_bytes(), deadline);
        redis::from_redis_value(reply.await?).map_err(|_| unexpected(what))
    }

    /// Runs a script or a command on the server that holds `key`.
    pub(crate) async fn perform(
        &self,
        work: &Work<'_>,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        match self.detected(deadline).await? {
            Detected::Single(node, _) => {
                let reply = node.perform(work, false, deadline).await;
                reply.map_err(CallError::into_store_error)
            }
            Detected::Cluster(cluster) => cluster.perform(slot_of(key), work, deadline).await,
        }
    }

    /// Sends a request to the script: on a single server together with others
    /// that are ready, on a cluster to the node that has `slot`.
    pub(crate) async fn send(
        &self,
        request: Request,
        slot: u16,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        if request.is_dated() {
            // Boxed, so that other requests reserve no space for it.
            Box::pin(self.send_dated(request, slot, deadline)).await
        } else {
            self.send_once(request, slot, deadline).await
        }
    }

    /// Returns the servers' time, as far as it is known: the time of this machine's clock, and
    /// how far the servers' was ahead when that last mattered.
    pub(crate) fn estimated_time(&self) -> Timestamp {
        let now = self.time.set_time().unwrap_or_else(|| self.clock.now());
        let ahead = self.ahead.load(Ordering::Relaxed);
        Timestamp::saturating_from_micros(now.micros().saturating_add_signed(ahead))
    }

    /// Sends a request with the calendar windows of the servers' time. If that has come to
    /// be another window, the script does nothing but return the time.
    async fn send_dated(
        &self,
        mut request: Request,
        slot: u16,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let now = || self.time.set_time().unwrap_or_else(|| self.clock.now());
        request.set_time(self.estimated_time());
        for _ in 0..MOST_DATES {
            let answer = self.send_once(request.clone(), slot, deadline).await?;
            if !answer.is_misdated() {
                return Ok(answer);
            }
            let servers = answer.now();
            request.set_time(servers);
            // The server may have granted some, and none may be requested twice.
            request.drop_lease_requests();
            // Instants are far below 2^63.
            let ahead = servers.micros() as i64 - now().micros() as i64;
            self.ahead.store(ahead, Ordering::Relaxed);
        }
        Err(bad_response(
            "the server's time is in another calendar window each time",
        ))
    }

    async fn send_once(
        &self,
        request: Request,
        slot: u16,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        match self.detected(deadline).await? {
            Detected::Single(node, batchers) => {
                let make = || Batcher::new(Arc::clone(node), self.timeout, self.time.clone());
                batchers.current(make).ask(request, deadline).await
            }
            Detected::Cluster(cluster) => {
                let call = Call::new(&[&request], self.time.now());
                let work = Work::Script(self.time.script(call.has_leases()), &call);
                // Boxed, because this future is large and moved often.
                let reply = Box::pin(cluster.perform(slot, &work, deadline)).await?;
                let answer = call.answers(bytes_of(&reply)?, 1)?.pop();
                answer.unwrap_or_else(|| Err(unexpected("the script")))
            }
        }
    }

    /// Deletes keys of one slot and returns how many there were.
    pub(crate) async fn unlink(
        &self,
        keys: &[Vec<u8>],
        deadline: Instant,
    ) -> Result<u64, StoreError> {
        let Some(first) = keys.first() else {
            return Ok(0);
        };
        let unlink = Cmd::unlink(keys);
        match self
            .perform(&Work::Command(&unlink), first, deadline)
            .await?
        {
            Value::Int(count @ 0..) => Ok(count as u64),
            _ => Err(unexpected("UNLINK")),
        }
    }

    /// Deletes every key that matches the pattern and returns how many there were.
    pub(crate) async fn unlink_matching(&self, pattern: &[u8]) -> Result<u64, StoreError> {
        let deadline = self.deadline();
        let nodes = match self.detected(deadline).await? {
            Detected::Single(node, _) => vec![Arc::clone(node)],
            Detected::Cluster(cluster) => cluster.nodes(deadline).await?,
        };
        let mut deleted = Ok(0);
        for node in nodes {
            let here = self.unlink_matching_on(&node, pattern).await;
            deleted = deleted.and_then(|before: u64| Ok(before + here?));
        }
        deleted
    }

    /// Deletes the matching keys of one server. A slot that moves between SCAN
    /// and UNLINK is followed.
    async fn unlink_matching_on(
        &self,
        node: &Arc<Node>,
        pattern: &[u8],
    ) -> Result<u64, StoreError> {
        let mut deleted = 0;
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(pattern);
            scan.arg("COUNT").arg(SCAN_COUNT);
            let deadline = Instant::now() + STEP_TIMEOUT;
            let reply = node.command(&scan, false, deadline).await;
            let reply = reply.map_err(CallError::into_store_error)?;
            let (next, keys): (String, Vec<Vec<u8>>) =
                redis::from_redis_value(reply).map_err(|_| unexpected("SCAN"))?;
            // A node of a cluster takes keys of one slot at a time.
            let mut by_slot: HashMap<u16, Vec<Vec<u8>>> = HashMap::new();
            for key in keys {
                by_slot.entry(slot_of(&key)).or_default().push(key);
            }
            for keys in by_slot.values() {
                deleted += self.unlink(keys, Instant::now() + STEP_TIMEOUT).await?;
            }
            if next == "0" {
                return Ok(deleted);
            }
            cursor = next;
        }
    }

    /// Returns the servers, asking one of them at first what it is if need be.
    async fn detected(&self, deadline: Instant) -> Result<&Detected, StoreError> {
        match self.detected.get() {
            Some(detected) => Ok(detected),
            // Boxed, so that decisions reserve no space for this large future.
            None => Box::pin(self.detect(deadline)).await,
        }
    }

    async fn detect(&self, deadline: Instant) -> Result<&Detected, StoreError> {
        let single = |node: &Arc<Node>| Detected::Single(Arc::clone(node), PerRuntime::new());
        let detected = self.detected.get_or_try_init(async || {
            Ok(match &self.configured {
                Configured::Single(node) => single(node),
                Configured::Detect(node, cluster) => {
                    let is_cluster = is_cluster_node(node, deadline).await?;
                    let mode = if is_cluster { "cluster" } else { "standalone" };
                    tracing::info!(
                        mode,
                        servers = node.name(),
                        "the mode of Redis was detected"
                    );
                    if is_cluster {
                        Detected::Cluster(Arc::clone(cluster))
                    } else {
                        single(node)
                    }
                }
                Configured::Cluster(cluster) => Detected::Cluster(Arc::clone(cluster)),
            })
        });
        match timeout_at(deadline, detected).await {
            Ok(detected) => detected,
            Err(_) => Err(no_answer(&self.configured.name())),
        }
    }
}

/// Returns whether a server is a node of a cluster. A server that refuses the
/// question counts as a single one.
async fn is_cluster_node(node: &Arc<Node>, deadline: Instant) -> Result<bool, StoreError> {
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    match node.command(&info, false, deadline).await {
        Ok(_) => Ok(true),
        Err(CallError::Failed(cause)) if cause.message.starts_with("ERR") => Ok(false),
        Err(CallError::Failed(cause)) if cause.reason == reason::NOPERM => Ok(false),
        Err(cause) => Err(cause.into_store_error()),
    }
}
