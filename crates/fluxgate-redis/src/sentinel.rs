//! Finds the primary by querying sentinels, and follows it when it changes.

mod answers;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisError, Value};
use tokio::sync::watch as watched;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::back_off::{BackOff, jitter};
use crate::endpoint::{CONNECT_TIMEOUT, Endpoint, ServerConnection, Subscription};
use crate::error::{Address, error, is_server_error, no_answer, store_error, unexpected};
use crate::events::Events;
use crate::lock::lock;
use crate::reason;
use answers::{SentinelAnswer, SentinelAnswers};

/// How long to wait for the other sentinels after the first answer: one of them may know of a
/// failover that the first does not.
const GRACE: Duration = Duration::from_millis(25);

/// The sentinels of one primary.
#[derive(Debug)]
pub(crate) struct Sentinels {
    sentinels: Vec<Sentinel>,
    /// The login at the primary; the address comes from the sentinels.
    server: Endpoint,
    master: String,
    answers: Mutex<SentinelAnswers>,
    named: watched::Sender<NamedPrimary>,
    events: Arc<Events>,
    /// Whether a task watches the sentinels.
    is_watched: AtomicBool,
    watcher: Mutex<Option<AbortHandle>>,
}

#[derive(Debug)]
struct Sentinel {
    endpoint: Endpoint,
    /// The connection for queries, once there is one.
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// The primary that the sentinels name.
#[derive(Clone, Debug, Default)]
struct NamedPrimary {
    /// `None` until a sentinel has answered.
    address: Option<Address>,
    /// Changes with each primary, so that connections can be compared with it.
    term: u64,
}

/// A connection to the primary.
pub(crate) struct Primary {
    pub(crate) endpoint: Endpoint,
    pub(crate) connection: ServerConnection,
    pub(crate) tenure: Tenure,
}

/// The time for which the sentinels name one primary.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) term: u64,
    named: watched::Receiver<NamedPrimary>,
}

impl Tenure {
    /// Waits until the sentinels name another primary.
    pub(crate) async fn wait_for_end(&mut self) {
        let term = self.term;
        if self
            .named
            .wait_for(|named| named.term != term)
            .await
            .is_err()
        {
            // The store is gone, so the sentinels are no longer queried.
            std::future::pending::<()>().await;
        }
    }
}

impl Sentinels {
    pub(crate) fn new(
        sentinels: Vec<Endpoint>,
        server: Endpoint,
        master: String,
        events: Arc<Events>,
    ) -> Arc<Self> {
        let sentinels: Vec<_> = sentinels.into_iter().map(Sentinel::new).collect();
        Arc::new(Self {
            answers: Mutex::new(SentinelAnswers::new(sentinels.len())),
            sentinels,
            server,
            master,
            named: watched::Sender::default(),
            events,
            is_watched: AtomicBool::new(false),
            watcher: Mutex::default(),
        })
    }

    pub(crate) fn name(&self) -> String {
        format!("the primary of {}", self.master)
    }

    /// Returns the current term, which changes with each failover.
    pub(crate) fn term(&self) -> u64 {
        self.named.borrow().term
    }

    /// Queries the sentinels and connects to the primary that they name, if that server confirms
    /// its role: they may not know of a failover yet.
    pub(crate) async fn primary(self: &Arc<Self>) -> Result<Primary, StoreError> {
        loop {
            let (address, term) = self.query_all().await?;
            let endpoint = self.server.with_address(address);
            let connection = connect_if_primary(&endpoint).await?;
            // Else there has been a failover since.
            if term == self.term() {
                let named = self.named.subscribe();
                return Ok(Primary {
                    endpoint,
                    connection,
                    tenure: Tenure { term, named },
                });
            }
        }
    }

    /// Queries all sentinels at once. Returns the primary to trust, and its term.
    async fn query_all(self: &Arc<Self>) -> Result<(Address, u64), StoreError> {
        let mut queries = JoinSet::new();
        for index in 0..self.sentinels.len() {
            let sentinels = Arc::clone(self);
            queries.spawn(async move { sentinels.query(index).await });
        }
        let mut last = error(reason::REDIS_ERROR, "there are no sentinels");
        let mut end = None;
        loop {
            let next = match end {
                Some(end) => timeout_at(end, queries.join_next()).await.ok().flatten(),
                None => queries.join_next().await,
            };
            match next {
                Some(Ok(Ok(()))) => end = end.or(Some(Instant::now() + GRACE)),
                Some(Ok(Err(cause))) => last = cause,
                Some(Err(_)) => {}
                None => break,
            }
        }
        let NamedPrimary { address, term } = self.named.borrow().clone();
        // At least one sentinel must have answered now: there may have been a failover since they
        // named this primary.
        match address.filter(|_| end.is_some()) {
            Some(address) => Ok((address, term)),
            None => Err(last),
        }
    }

    /// Queries one sentinel and records its answer.
    async fn query(&self, index: usize) -> Result<(), StoreError> {
        let sentinel = &self.sentinels[index];
        let answer = match timeout(CONNECT_TIMEOUT, sentinel.query(&self.master)).await {
            Ok(answer) => answer?,
            Err(_) => {
                // The connection may be half open.
                *lock(&sentinel.connection) = None;
                return Err(no_answer(&sentinel.name()));
            }
        };
        let is_known = answer.is_some();
        self.record(index, answer);
        if is_known {
            return Ok(());
        }
        let (sentinel, master) = (sentinel.name(), &self.master);
        let message = format!("{sentinel} knows no primary named {master:?}");
        Err(error(reason::REDIS_ERROR, &message))
    }

    fn record(&self, index: usize, answer: Option<SentinelAnswer>) {
        // Held to the end, so that no older view replaces a newer one.
        let mut answers = lock(&self.answers);
        let now = Instant::now();
        answers.set(index, answer, now);
        let NamedPrimary { address, term } = self.named.borrow().clone();
        match answers.trusted(address.as_ref(), now) {
            Some(trusted) if Some(trusted) != address.as_ref() => {
                self.named.send_replace(NamedPrimary {
                    address: Some(trusted.clone()),
                    term: term + 1,
                });
                if let Some(old) = address {
                    let name = |(host, port): &Address| format!("{host}:{port}");
                    self.events
                        .record_failover(&self.master, &name(&old), &name(trusted));
                }
            }
            _ => {}
        }
    }
}

impl Sentinel {
    fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            connection: Mutex::default(),
        }
    }

    fn name(&self) -> String {
        format!("the sentinel at {}", self.endpoint.name())
    }

    /// Queries the primary; `None` if the sentinel does not know it.
    async fn query(&self, master: &str) -> Result<Option<SentinelAnswer>, StoreError> {
        let cached = lock(&self.connection).clone();
        if let Some(connection) = cached {
            match send_query(connection, master).await {
                Ok(replies) => return self.parse(replies),
                Err(cause) if is_server_error(&cause) => return Err(store_error(&cause)),
                // The connection may be lost, and a second query does no harm.
                Err(_) => {}
            }
        }
        let connection = self.endpoint.connect().await?.commands;
        let replies = send_query(connection.clone(), master)
            .await
            .map_err(|cause| store_error(&cause))?;
        *lock(&self.connection) = Some(connection);
        self.parse(replies)
    }

    fn parse(&self, [details, address]: [Value; 2]) -> Result<Option<SentinelAnswer>, StoreError> {
        let address = match address.extract_error() {
            Ok(Value::Nil) => return Ok(None),
            Ok(address) => {
                redis::from_redis_value::<Address>(address).map_err(|_| unexpected(&self.name()))?
            }
            Err(cause) => return Err(store_error(&cause)),
        };
        // Without the permission to read it, the epoch is 0.
        let epoch = redis::from_redis_value::<HashMap<String, String>>(details)
            .ok()
            .and_then(|details| details.get("config-epoch")?.parse().ok())
            .unwrap_or_default();
        Ok(Some(SentinelAnswer { address, epoch }))
    }
}

/// Queries the epoch, then the address. If the answer changes in between, it has the old epoch
/// and the new address. The other way round, it would have the old address and the new epoch,
/// and be trusted.
async fn send_query(
    mut connection: MultiplexedConnection,
    master: &str,
) -> Result<[Value; 2], RedisError> {
    let mut both = Pipeline::with_capacity(2);
    both.cmd("SENTINEL").arg("MASTER").arg(master);
    both.cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(master);
    let replies = connection.send_packed_commands(&both, 0, 2).await?;
    let unexpected = |_| RedisError::from((ErrorKind::Parse, "two replies were expected"));
    replies.try_into().map_err(unexpected)
}

/// Connects to a server that confirms that it is a primary.
async fn connect_if_primary(server: &Endpoint) -> Result<ServerConnection, StoreError> {
    let mut connection = server.connect().await?;
    let commands = &mut connection.commands;
    let role = commands
        .send_packed_command(&redis::cmd("ROLE"))
        .await
        .and_then(Value::extract_error)
        .map_err(|cause| store_error(&cause))?;
    match role {
        Value::Array(role) if role.first().is_some_and(is_master) => Ok(connection),
        _ => {
            let message = format!("{} is not the primary any more", server.name());
            Err(error(reason::READONLY, &message))
        }
    }
}

fn is_master(role: &Value) -> bool {
    match role {
        Value::BulkString(role) => role == b"master",
        Value::SimpleString(role) => role == "master",
        _ => false,
    }
}

/// The longest time between two polls; see [`jitter`] for the shortest.
const POLL_INTERVAL: Duration = Duration::from_millis(1200);
/// The longest wait before a lost subscription is renewed.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// A subscription that is lost sooner than this counts as a failure.
const STABLE_AFTER: Duration = Duration::from_secs(1);
/// The channels on which a sentinel publishes another primary. The sentinel that leads the
/// failover names the new one after `+promoted-slave`; with several replicas, `+switch-master`
/// may follow much later. The other sentinels publish only `+switch-master`.
const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];

impl Sentinels {
    /// Watches the sentinels in the background, unless a task does already, and calls the result
    /// of `on_switch` whenever they name another primary. Must be called inside a Tokio runtime;
    /// the task ends with it or with [`Sentinels::unwatch`].
    ///
    /// Each sentinel is polled about once a second, and at once when it publishes another
    /// primary. The message itself is not trusted, since it has no config epoch.
    pub(crate) fn watch<F: Fn() + Send + 'static>(self: &Arc<Self>, on_switch: impl FnOnce() -> F) {
        // Every command calls this, because the runtime of an earlier task may have ended. It
        // costs a load.
        if self.is_watched.load(Ordering::Relaxed) || self.is_watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let (guard, on_switch) = (WatchGuard(Arc::clone(self)), on_switch());
        let mut named = self.named.subscribe();
        let task = tokio::spawn(async move {
            let _tasks = spawn_tasks(&guard.0);
            loop {
                // Once for what happened before the subscription.
                on_switch();
                if named.changed().await.is_err() {
                    break;
                }
            }
        });
        *lock(&self.watcher) = Some(task.abort_handle());
    }

    /// Stops watching.
    pub(crate) fn unwatch(&self) {
        if let Some(watcher) = lock(&self.watcher).take() {
            watcher.abort();
        }
    }
}

/// Marks the sentinels as watched until it is dropped.
struct WatchGuard(Arc<Sentinels>);

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.0.is_watched.store(false, Ordering::Release);
    }
}

/// Starts the tasks that poll and listen; they run until the set is dropped.
fn spawn_tasks(sentinels: &Arc<Sentinels>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for index in 0..sentinels.sentinels.len() {
        tasks.spawn(poll(Arc::clone(sentinels), index));
        tasks.spawn(listen(Arc::clone(sentinels), index));
    }
    tasks
}

async fn poll(sentinels: Arc<Sentinels>, index: usize) {
    loop {
        sleep(jitter(POLL_INTERVAL)).await;
        // A sentinel that does not answer has no vote.
        let _ = sentinels.query(index).await;
    }
}

async fn listen(sentinels: Arc<Sentinels>, index: usize) {
    let endpoint = &sentinels.sentinels[index].endpoint;
    let mut back_off = BackOff::up_to(LONGEST_WAIT);
    loop {
        // If it cannot be opened, `poll` still queries.
        if let Ok(mut messages) = Subscription::open(endpoint, &CHANNELS).await {
            let opened = Instant::now();
            loop {
                // Once for messages from before the subscription, then for each message.
                let _ = sentinels.query(index).await;
                if messages.next().await.is_none() {
                    break;
                }
            }
            if opened.elapsed() >= STABLE_AFTER {
                back_off.reset();
            }
        }
        sleep(back_off.next_wait()).await;
    }
}
