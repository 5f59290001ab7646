//! One server: its connection, which is made anew when it breaks, and its
//! circuit breaker.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::breaker::{Breaker, BreakerState, Permit};
use crate::codec::Call;
use crate::endpoint::{CONNECT_TIMEOUT, Endpoint};
use crate::error::{CallError, call_error, error, is_silence, is_told, timeout as no_answer};
use crate::events::Events;
use crate::jitter::jitter;
use crate::reason;
use crate::script::Script;
use crate::sentinel::{Sentinels, Tenure};

/// The wait after a connection that failed, the first time and at most.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(400);

/// Where the server is to be found.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each server, inside a node that is shared"
)]
pub(crate) enum Source {
    /// Always there.
    Fixed(Endpoint),
    /// Where the sentinels say: asked anew for each connection, and watched.
    Sentinels(Arc<Sentinels>),
}

/// One server.
#[derive(Debug)]
pub(crate) struct Node {
    source: Source,
    link: Mutex<Link>,
    breaker: Breaker,
    /// Whether somebody is loading the script.
    loading: AtomicBool,
    events: Arc<Events>,
}

/// What a server can be asked to do.
#[derive(Debug)]
pub(crate) enum Work<'w> {
    /// To run a script.
    Script(&'static Script, &'w Call<'w>),
    /// Anything else.
    Command(&'w Cmd),
}

/// What there is of a connection.
#[derive(Debug)]
enum Link {
    /// None; one may be made from `until` on.
    Down {
        until: Instant,
        failures: u32,
        cause: StoreError,
    },
    /// One is being made, for all who wait.
    Connecting(watch::Receiver<Option<Result<Connection, StoreError>>>),
    Up(Connection),
}

#[derive(Clone, Debug)]
struct Connection {
    number: u64,
    /// Of [`Sentinels::term`]; 0 without sentinels.
    term: u64,
    inner: MultiplexedConnection,
}

impl Node {
    pub(crate) fn new(source: Source, events: Arc<Events>) -> Arc<Self> {
        Arc::new(Self {
            source,
            link: Mutex::new(Link::lost(error(reason::REDIS_ERROR, "not connected yet"))),
            breaker: Breaker::default(),
            loading: AtomicBool::new(false),
            events,
        })
    }

    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Where it is, for people.
    pub(crate) fn name(&self) -> String {
        match &self.source {
            Source::Fixed(endpoint) => endpoint.name(),
            Source::Sentinels(sentinels) => sentinels.name(),
        }
    }

    /// Returns where to connect for messages, beside the connection for
    /// commands, and how long that holds if it may change.
    pub(crate) async fn endpoint(
        self: &Arc<Self>,
    ) -> Result<(Endpoint, Option<Tenure>), StoreError> {
        match &self.source {
            Source::Fixed(endpoint) => Ok((endpoint.clone(), None)),
            Source::Sentinels(sentinels) => {
                self.watch(sentinels);
                let primary = sentinels.primary().await?;
                Ok((primary.endpoint, Some(primary.tenure)))
            }
        }
    }

    /// Does a piece of work. A server that has lost the script is given its
    /// text at once, and told to keep it in the background.
    pub(crate) async fn perform(
        self: &Arc<Self>,
        work: &Work<'_>,
        asking: bool,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        let (script, call) = match work {
            Work::Command(command) => return self.command(command, asking, deadline).await,
            Work::Script(script, call) => (script, call),
        };
        let known = evaluation("EVALSHA", &script.sha1, call);
        match self.command(&known, asking, deadline).await {
            Err(CallError::NoScript) => {
                self.load_script(script);
                let text = evaluation("EVAL", script.text, call);
                self.command(&text, asking, deadline).await
            }
            reply => reply,
        }
    }

    /// Sends one command and waits for its reply, not beyond the deadline. It
    /// is never sent twice.
    pub(crate) async fn command(
        self: &Arc<Self>,
        command: &Cmd,
        asking: bool,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        let Some(permit) = self.breaker.admit() else {
            let message = format!("{} does not answer and is left alone for now", self.name());
            return Err(error(reason::CIRCUIT_OPEN, &message).into());
        };
        let connection = match timeout_at(deadline, self.connection()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(cause)) => return Err(told(permit, cause.into())),
            Err(_) => return Err(told(permit, no_answer(&self.name()).into())),
        };
        let number = connection.number;
        let reply = timeout_at(deadline, connection.send(command, asking)).await;
        let (cause, is_told) = match reply {
            Ok(Ok(value)) => {
                permit.answered();
                return Ok(value);
            }
            Ok(Err(cause)) => (call_error(&cause), is_told(&cause)),
            Err(_) => (CallError::Failed(no_answer(&self.name())), false),
        };
        // Whatever still comes over it is not waited for, and a server that has
        // become a replica must be looked for elsewhere.
        if !is_told || matches!(cause, CallError::ReadOnly(_)) {
            self.discard(number, &cause);
        }
        if is_told {
            permit.answered();
        } else {
            permit.silent();
        }
        Err(cause)
    }

    /// Gives the connection up, for a reply that came over it was none: what
    /// comes next may be the answer to another question.
    pub(crate) fn distrust(&self, cause: &StoreError) {
        let mut link = self.link();
        if matches!(&*link, Link::Up(_)) {
            *link = Link::lost(cause.clone());
        }
    }

    /// The connection; if there is none, the one that is being made.
    async fn connection(self: &Arc<Self>) -> Result<Connection, StoreError> {
        if let Source::Sentinels(sentinels) = &self.source {
            self.watch(sentinels);
        }
        let mut made = {
            let mut link = self.link();
            match &*link {
                Link::Up(connection) => return Ok(connection.clone()),
                Link::Connecting(made) => made.clone(),
                Link::Down { until, cause, .. } if Instant::now() < *until => {
                    return Err(cause.clone());
                }
                Link::Down { failures, .. } => {
                    let made = self.connect(*failures);
                    *link = Link::Connecting(made.clone());
                    made
                }
            }
        };
        let made = made.wait_for(Option::is_some).await;
        match made.ok().and_then(|made| made.clone()) {
            Some(made) => made,
            None => {
                // Whoever was connecting is gone, with its runtime.
                let cause = error(reason::REDIS_ERROR, "the connection was given up");
                *self.link() = Link::lost(cause.clone());
                Err(cause)
            }
        }
    }

    /// Makes a connection in the background: who started it may be cancelled,
    /// and others wait for it too.
    fn connect(
        self: &Arc<Self>,
        failures: u32,
    ) -> watch::Receiver<Option<Result<Connection, StoreError>>> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let (sender, receiver) = watch::channel(None);
        let node = Arc::clone(self);
        tokio::spawn(async move {
            let inner = match timeout(2 * CONNECT_TIMEOUT, node.source.connect()).await {
                Ok(inner) => inner,
                Err(_) => Err(no_answer(&node.name())),
            };
            let made = inner.map(|(inner, term)| Connection {
                number: NUMBERS.fetch_add(1, Ordering::Relaxed),
                term,
                inner,
            });
            let mut link = node.link();
            *link = match &made {
                // Looked at under the lock: who names another primary meanwhile
                // finds the link up.
                Ok(connection) if node.is_outdated(connection) => Link::lost(other_primary()),
                Ok(connection) => Link::Up(connection.clone()),
                Err(cause) => Link::Down {
                    until: Instant::now() + wait_after(failures),
                    failures: failures.saturating_add(1),
                    cause: cause.clone(),
                },
            };
            drop(link);
            sender.send_replace(Some(made));
        });
        receiver
    }

    /// Watches the sentinels, so that a primary that they no longer name is left.
    fn watch(self: &Arc<Self>, sentinels: &Arc<Sentinels>) {
        sentinels.watch(|| {
            let node = Arc::downgrade(self);
            move || {
                if let Some(node) = node.upgrade() {
                    node.leave_old_primary();
                }
            }
        });
    }

    /// Gives up a connection to a primary that the sentinels no longer name.
    /// What was sent over it is still answered. If there is no connection, the
    /// next call makes one at once: the new primary is not the one that failed.
    fn leave_old_primary(&self) {
        let mut link = self.link();
        match &*link {
            Link::Up(connection) if !self.is_outdated(connection) => {}
            Link::Connecting(_) => {}
            Link::Up(_) | Link::Down { .. } => *link = Link::lost(other_primary()),
        }
    }

    /// Returns whether the sentinels name another primary than that of this
    /// connection.
    fn is_outdated(&self, connection: &Connection) -> bool {
        match &self.source {
            Source::Fixed(_) => false,
            Source::Sentinels(sentinels) => connection.term != sentinels.term(),
        }
    }

    /// Gives a connection up, if it is still the one in use.
    fn discard(&self, number: u64, cause: &CallError) {
        let mut link = self.link();
        if matches!(&*link, Link::Up(connection) if connection.number == number) {
            *link = Link::lost(cause.clone().into_store_error());
        }
    }

    fn load_script(self: &Arc<Self>, script: &'static Script) {
        if self.loading.swap(true, Ordering::AcqRel) {
            return;
        }
        let node = Arc::clone(self);
        tokio::spawn(async move {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(script.text);
            let deadline = Instant::now() + CONNECT_TIMEOUT;
            // If it fails, the next call without a script loads it again.
            if node.command(&load, false, deadline).await.is_ok() {
                node.events.script_reloaded(&node.name());
            }
            node.loading.store(false, Ordering::Release);
        });
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        // Nothing can panic while it is held.
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// There is none any more; the next who asks makes another at once.
    fn lost(cause: StoreError) -> Self {
        Self::Down {
            until: Instant::now(),
            failures: 0,
            cause,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Source::Sentinels(sentinels) = &self.source {
            sentinels.unwatch();
        }
    }
}

impl Source {
    /// Connects; returns the connection with its term.
    async fn connect(&self) -> Result<(MultiplexedConnection, u64), StoreError> {
        match self {
            Self::Fixed(endpoint) => Ok((endpoint.connect().await?, 0)),
            Self::Sentinels(sentinels) => {
                let primary = sentinels.primary().await?;
                Ok((primary.connection, primary.tenure.term))
            }
        }
    }
}

impl Connection {
    async fn send(mut self, command: &Cmd, asking: bool) -> Result<Value, redis::RedisError> {
        if !asking {
            return self
                .inner
                .send_packed_command(command)
                .await?
                .extract_error();
        }
        // In one piece, for the leave holds for the very next command only.
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").ignore();
        both.add_command(command.clone());
        let mut replies = self.inner.send_packed_commands(&both, 1, 1).await?;
        replies.pop().unwrap_or(Value::Nil).extract_error()
    }
}

fn evaluation(name: &str, script: &str, call: &Call<'_>) -> Cmd {
    let keys: usize = call.keys.iter().map(|key| key.len()).sum();
    let size = name.len() + script.len() + keys + call.argument.len() + 32;
    let mut command = Cmd::with_capacity(call.keys.len() + 5, size);
    command.arg(name).arg(script).arg(call.keys.len());
    for key in &call.keys {
        command.arg(*key);
    }
    command.arg(&call.argument[..]);
    if let Some(now) = &call.now {
        command.arg(now);
    }
    command
}

fn other_primary() -> StoreError {
    error(reason::READONLY, "the sentinels name another primary")
}

/// Tells the breaker what an error on the way says about the server.
fn told(permit: Permit<'_>, cause: CallError) -> CallError {
    match &cause {
        CallError::Failed(cause) if is_silence(cause.reason) => permit.silent(),
        _ => permit.answered(),
    }
    cause
}

fn wait_after(failures: u32) -> Duration {
    let longer = FIRST_WAIT.saturating_mul(1 << failures.min(10));
    jitter(longer.min(LONGEST_WAIT))
}
