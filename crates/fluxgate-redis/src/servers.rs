//! The servers of a deployment: a single server, or a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fluxgate_core::{Clock, StoreError, SystemClock, Timestamp};
use redis::{Cmd, FromRedisValue, Pipeline, Value};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use crate::batch::{Batcher, bytes_of};
use crate::breaker::BreakerState;
use crate::cluster::{Cluster, hash_slot_of};
use crate::codec::{Answer, Call, Request};
use crate::error::{CallError, bad_response, call_error, no_answer, unexpected};
use crate::events::Events;
use crate::node::{Node, Operation};
use crate::per_runtime::PerRuntime;
use crate::reason;
use crate::script::TimeSource;

/// How many keys one step of SCAN looks at, so that no step blocks the server.
const SCAN_COUNT: usize = 1000;
/// No decision waits for a step, so it may take longer than one.
const STEP_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout of a command that no decision waits for.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a request is sent until its calendar windows contain the server's time. They do
/// the second time, unless the clock jumps or another node answers.
const MAX_SENDS: usize = 4;

/// The servers of a deployment.
#[derive(Debug)]
pub(crate) struct Servers {
    configured: ConfiguredServers,
    /// How long a decision may take.
    pub(crate) timeout: Duration,
    time: TimeSource,
    clock: SystemClock,
    /// How far the servers' clock was ahead of this machine's when calendar windows last
    /// differed, in microseconds.
    ahead: AtomicI64,
    pub(crate) events: Arc<Events>,
}

/// The servers as configured.
#[derive(Debug)]
pub(crate) enum ConfiguredServers {
    Known(ServerKind),
    /// The server's reply tells whether it is a node of the cluster.
    Detect(Arc<Node>, Arc<Cluster>, OnceCell<ServerKind>),
}

/// The servers, once it is known whether they are a cluster.
#[derive(Debug)]
pub(crate) enum ServerKind {
    /// One server, or the primary behind sentinels.
    Single(Arc<Node>, PerRuntime<Batcher>),
    Cluster(Arc<Cluster>),
}

impl ServerKind {
    pub(crate) fn single(node: Arc<Node>) -> Self {
        Self::Single(node, PerRuntime::new())
    }
}

impl Servers {
    pub(crate) fn new(
        configured: ConfiguredServers,
        timeout: Duration,
        time: TimeSource,
        events: Arc<Events>,
    ) -> Self {
        Self {
            configured,
            timeout,
            time,
            clock: SystemClock::default(),
            ahead: AtomicI64::new(0),
            events,
        }
    }

    /// Returns the deadline of a decision that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Returns the time that a test has set, if any.
    pub(crate) fn test_time(&self) -> Option<Timestamp> {
        self.time.test_time()
    }

    /// Returns the state of the server's breaker. For a cluster, returns the state of a breaker
    /// that is not closed, if there is one.
    pub(crate) fn breaker_state(&self) -> BreakerState {
        let kind = match &self.configured {
            ConfiguredServers::Known(kind) => kind,
            ConfiguredServers::Detect(node, _, detected) => match detected.get() {
                Some(kind) => kind,
                None => return node.breaker_state(),
            },
        };
        match kind {
            ServerKind::Single(node, _) => node.breaker_state(),
            ServerKind::Cluster(cluster) => cluster.breaker_state(),
        }
    }

    pub(crate) async fn is_cluster(&self, deadline: Instant) -> Result<bool, StoreError> {
        let detected = self.detected(deadline).await?;
        Ok(matches!(detected, ServerKind::Cluster(_)))
    }

    pub(crate) async fn ping(&self, deadline: Instant) -> Result<(), StoreError> {
        match self.detected(deadline).await? {
            ServerKind::Single(node, _) => {
                node.command(&Cmd::ping(), false, deadline).await?;
                Ok(())
            }
            ServerKind::Cluster(cluster) => cluster.refresh(deadline).await,
        }
    }

    /// Returns the server that has a key.
    pub(crate) async fn node_of(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Arc<Node>, StoreError> {
        match self.detected(deadline).await? {
            ServerKind::Single(node, _) => Ok(Arc::clone(node)),
            ServerKind::Cluster(cluster) => cluster.node_of(hash_slot_of(key), deadline).await,
        }
    }

    /// Runs a command on the server that has `key`, and reads its reply. `what` names the command
    /// in errors.
    pub(crate) async fn command<T: FromRedisValue>(
        &self,
        command: &Cmd,
        key: &str,
        what: &str,
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        let reply = self.perform(Operation::Command(command), key.as_bytes(), deadline);
        redis::from_redis_value(reply.await?).map_err(|_| unexpected(what))
    }

    /// Sends commands together to the servers that have their keys, outside the path of decisions.
    /// Returns the reply to each. On a cluster, a command whose key is moving fails; the next call
    /// finds where it is.
    pub(crate) async fn pipeline(
        &self,
        commands: &[(&[u8], Cmd)],
        deadline: Instant,
    ) -> Vec<Result<Value, StoreError>> {
        let mut replies: Vec<_> = commands.iter().map(|_| Err(no_answer("Redis"))).collect();
        // By node, in the order in which they are first needed.
        let mut parts: Vec<(Arc<Node>, Vec<usize>)> = Vec::new();
        for (index, (key, _)) in commands.iter().enumerate() {
            match self.node_of(key, deadline).await {
                Ok(node) => match parts
                    .iter_mut()
                    .find(|(known, _)| Arc::ptr_eq(known, &node))
                {
                    Some((_, part)) => part.push(index),
                    None => parts.push((node, vec![index])),
                },
                Err(cause) => replies[index] = Err(cause),
            }
        }
        let mut has_moved = false;
        for (node, part) in parts {
            let mut pipeline = Pipeline::with_capacity(part.len());
            for index in &part {
                pipeline.add_command(commands[*index].1.clone());
            }
            match node.pipeline(&pipeline, deadline).await {
                Ok(values) => {
                    for (index, value) in part.into_iter().zip(values) {
                        let value = value.extract_error().map_err(|cause| call_error(&cause));
                        has_moved |= matches!(value, Err(CallError::Moved(_) | CallError::Ask(_)));
                        replies[index] = value.map_err(StoreError::from);
                    }
                }
                Err(cause) => {
                    has_moved = true;
                    part.into_iter()
                        .for_each(|index| replies[index] = Err(cause.clone()));
                }
            }
        }
        if has_moved && let Ok(ServerKind::Cluster(cluster)) = self.detected(deadline).await {
            cluster.refresh_in_background();
        }
        replies
    }

    /// Runs a script or a command on the server that has `key`.
    pub(crate) async fn perform(
        &self,
        operation: Operation<'_>,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        match self.detected(deadline).await? {
            ServerKind::Single(node, _) => Ok(node.perform(operation, false, deadline).await?),
            ServerKind::Cluster(cluster) => {
                cluster
                    .perform(hash_slot_of(key), operation, deadline)
                    .await
            }
        }
    }

    /// Sends a request to the script: on a single server together with others that are ready, on
    /// a cluster to the node that has its keys, which must be in one hash slot.
    pub(crate) async fn send(
        &self,
        request: Request,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        if request.has_calendars() {
            // Boxed, so that other requests reserve no space for it.
            Box::pin(self.send_with_windows(request, deadline)).await
        } else {
            self.send_once(request, deadline).await
        }
    }

    /// Returns an estimate of the servers' time: this machine's time, plus how far the servers'
    /// clock was ahead when that last mattered.
    pub(crate) fn estimated_time(&self) -> Timestamp {
        let now = self.time.test_time().unwrap_or_else(|| self.clock.now());
        let ahead = self.ahead.load(Ordering::Relaxed);
        Timestamp::saturating_from_micros(now.micros().saturating_add_signed(ahead))
    }

    /// Sends a request with calendar windows. If they do not contain the server's time, the
    /// script does nothing but return the time, and the request is sent again.
    async fn send_with_windows(
        &self,
        mut request: Request,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let now = || self.time.test_time().unwrap_or_else(|| self.clock.now());
        request.set_windows(self.estimated_time());
        for _ in 0..MAX_SENDS {
            let answer = self.send_once(request.clone(), deadline).await?;
            if !answer.is_outside_window {
                return Ok(answer);
            }
            let servers = answer.now;
            request.set_windows(servers);
            // The server may have granted some, and none may be requested twice.
            request.lease_requests.clear();
            // Instants are far below 2^63.
            let ahead = servers.micros() as i64 - now().micros() as i64;
            self.ahead.store(ahead, Ordering::Relaxed);
        }
        Err(bad_response(
            "the server's time is in another calendar window each time",
        ))
    }

    async fn send_once(&self, request: Request, deadline: Instant) -> Result<Answer, StoreError> {
        match self.detected(deadline).await? {
            ServerKind::Single(node, batchers) => {
                let make = || Batcher::new(Arc::clone(node), self.timeout, self.time.clone());
                batchers.current(make).send(request, deadline).await
            }
            ServerKind::Cluster(cluster) => {
                let hash_slot = request.first_key().map(hash_slot_of).unwrap_or_default();
                let call = Call::new(&[&request], self.time.now());
                let operation = Operation::Script(self.time.script(call.has_leases), &call);
                // Boxed, because this future is large and moved often.
                let reply = Box::pin(cluster.perform(hash_slot, operation, deadline)).await?;
                let answer = call.answers(bytes_of(&reply)?, 1)?.pop();
                answer.unwrap_or_else(|| Err(unexpected("the script")))
            }
        }
    }

    /// Deletes keys of one hash slot. Returns how many there were.
    pub(crate) async fn unlink(
        &self,
        keys: &[Vec<u8>],
        deadline: Instant,
    ) -> Result<u64, StoreError> {
        let Some(first) = keys.first() else {
            return Ok(0);
        };
        let unlink = Cmd::unlink(keys);
        let operation = Operation::Command(&unlink);
        match self.perform(operation, first, deadline).await? {
            Value::Int(count @ 0..) => Ok(count as u64),
            _ => Err(unexpected("UNLINK")),
        }
    }

    /// Deletes all keys that match a pattern. Returns how many there were.
    pub(crate) async fn unlink_matching(&self, pattern: &[u8]) -> Result<u64, StoreError> {
        let deadline = self.deadline();
        let nodes = match self.detected(deadline).await? {
            ServerKind::Single(node, _) => vec![Arc::clone(node)],
            ServerKind::Cluster(cluster) => cluster.nodes(deadline).await?,
        };
        let mut deleted = Ok(0);
        for node in nodes {
            let here = self.unlink_matching_on(&node, pattern).await;
            deleted = deleted.and_then(|before: u64| Ok(before + here?));
        }
        deleted
    }

    /// Deletes the matching keys of one server. If a hash slot moves between SCAN and UNLINK, its
    /// keys are deleted where they are.
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
            let reply = node.command(&scan, false, deadline).await?;
            let (next, keys): (String, Vec<Vec<u8>>) =
                redis::from_redis_value(reply).map_err(|_| unexpected("SCAN"))?;
            // A node of a cluster takes keys of one hash slot at a time.
            let mut by_slot: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
            for key in keys {
                by_slot.entry(hash_slot_of(&key)).or_default().push(key);
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

    /// Returns the servers. If it is not known yet whether they are a cluster, asks one of them.
    async fn detected(&self, deadline: Instant) -> Result<&ServerKind, StoreError> {
        let (node, cluster, detected) = match &self.configured {
            ConfiguredServers::Known(kind) => return Ok(kind),
            ConfiguredServers::Detect(node, cluster, detected) => (node, cluster, detected),
        };
        if let Some(kind) = detected.get() {
            return Ok(kind);
        }
        let detecting = detected.get_or_try_init(async || {
            let is_cluster = is_cluster_node(node, deadline).await?;
            let mode = if is_cluster { "cluster" } else { "standalone" };
            tracing::info!(
                mode,
                servers = node.name(),
                "the mode of Redis was detected"
            );
            Ok(if is_cluster {
                ServerKind::Cluster(Arc::clone(cluster))
            } else {
                ServerKind::single(Arc::clone(node))
            })
        });
        // Boxed, so that decisions reserve no space for this large future.
        match Box::pin(timeout_at(deadline, detecting)).await {
            Ok(kind) => kind,
            Err(_) => Err(no_answer(&node.name())),
        }
    }
}

/// Returns whether a server is a node of a cluster. One that refuses the command is not.
async fn is_cluster_node(node: &Arc<Node>, deadline: Instant) -> Result<bool, StoreError> {
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    match node.command(&info, false, deadline).await {
        Ok(_) => Ok(true),
        Err(CallError::Failed(cause)) if cause.message.starts_with("ERR") => Ok(false),
        Err(CallError::Failed(cause)) if cause.reason == reason::NOPERM => Ok(false),
        Err(cause) => Err(cause.into()),
    }
}
