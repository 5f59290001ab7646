//! One server: its circuit breaker, and a connection for each runtime, which is renewed when it
//! breaks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_core::StoreError;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::SetOnce;
use tokio::time::{Instant, timeout, timeout_at};

use crate::back_off::BackOff;
use crate::breaker::{Breaker, BreakerState, Permit};
use crate::codec::Call;
use crate::deadlines::Deadlines;
use crate::endpoint::{CONNECT_TIMEOUT, Endpoint, ServerConnection};
use crate::error::{CallError, call_error, error, is_no_answer, is_server_error, no_answer};
use crate::events::Events;
use crate::lock::lock;
use crate::per_runtime::PerRuntime;
use crate::reason;
use crate::script::Script;
use crate::sentinel::{Sentinels, Tenure};

/// The waits between attempts to connect.
const BACK_OFF: BackOff = BackOff::new(Duration::from_millis(10), Duration::from_millis(400));

/// How to find the server.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each server, inside a node that is shared"
)]
pub(crate) enum ServerLocation {
    /// At a fixed address.
    Fixed(Endpoint),
    /// Where the sentinels say. They are queried before each connection, and watched.
    Sentinels(Arc<Sentinels>),
}

/// One server.
#[derive(Debug)]
pub(crate) struct Node {
    location: ServerLocation,
    connections: PerRuntime<SharedConnection>,
    breaker: Breaker,
    /// Whether a task is loading the script.
    loading: AtomicBool,
    events: Arc<Events>,
}

/// What a server runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation<'w> {
    /// A script.
    Script(&'static Script, &'w Call<'w>),
    /// Any other command.
    Command(&'w Cmd),
}

/// The connection that all requests of one runtime share.
#[derive(Debug)]
struct SharedConnection {
    state: Mutex<ConnectionState>,
    deadlines: Deadlines,
}

/// The state of a connection.
#[derive(Debug)]
enum ConnectionState {
    /// There is no connection. The next attempt may start at `until`.
    Down {
        until: Instant,
        back_off: BackOff,
        cause: StoreError,
    },
    /// A task connects for all waiting requests.
    Connecting(Arc<ConnectOutcome>),
    Up(Connection),
}

/// What an attempt to connect came to; `None` if it was abandoned. Requests that wait for it go on
/// in the order in which they came.
type ConnectOutcome = SetOnce<Option<Result<Connection, StoreError>>>;

/// An attempt to connect, which is abandoned if it is dropped.
struct ConnectAttempt(Arc<ConnectOutcome>);

impl ConnectAttempt {
    fn finish(self, connected: Result<Connection, StoreError>) {
        // It is set once, here or on drop.
        let _ = self.0.set(Some(connected));
    }
}

impl Drop for ConnectAttempt {
    fn drop(&mut self) {
        let _ = self.0.set(None);
    }
}

/// A numbered connection.
#[derive(Clone, Debug)]
struct Connection {
    number: u64,
    /// The [`Sentinels::term`] it belongs to; 0 without sentinels.
    term: u64,
    inner: ServerConnection,
}

impl Node {
    pub(crate) fn new(location: ServerLocation, events: Arc<Events>) -> Arc<Self> {
        Arc::new(Self {
            location,
            connections: PerRuntime::new(),
            breaker: Breaker::default(),
            loading: AtomicBool::new(false),
            events,
        })
    }

    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Returns the address for error messages.
    pub(crate) fn name(&self) -> String {
        match &self.location {
            ServerLocation::Fixed(endpoint) => endpoint.name(),
            ServerLocation::Sentinels(sentinels) => sentinels.name(),
        }
    }

    /// Returns where to open a connection for subscriptions and, with sentinels, the tenure of
    /// the primary.
    pub(crate) async fn endpoint(
        self: &Arc<Self>,
    ) -> Result<(Endpoint, Option<Tenure>), StoreError> {
        match &self.location {
            ServerLocation::Fixed(endpoint) => Ok((endpoint.clone(), None)),
            ServerLocation::Sentinels(sentinels) => {
                self.watch(sentinels);
                let primary = sentinels.primary().await?;
                Ok((primary.endpoint, Some(primary.tenure)))
            }
        }
    }

    /// Runs a script or a command. If the server lacks the script, sends its text with the call
    /// and loads it in the background.
    pub(crate) async fn perform(
        self: &Arc<Self>,
        operation: Operation<'_>,
        asking: bool,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        let (script, call) = match operation {
            Operation::Command(command) => return self.command(command, asking, deadline).await,
            Operation::Script(script, call) => (script, call),
        };
        let by_hash = eval_command("EVALSHA", &script.sha1, call);
        match self.command(&by_hash, asking, deadline).await {
            Err(CallError::NoScript) => {
                self.load_script(script);
                let by_text = eval_command("EVAL", script.text, call);
                self.command(&by_text, asking, deadline).await
            }
            reply => reply,
        }
    }

    /// Sends one command, once, and waits for its reply until the deadline.
    pub(crate) async fn command(
        self: &Arc<Self>,
        command: &Cmd,
        asking: bool,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        let Some(permit) = self.breaker.admit() else {
            let message = format!(
                "{} does not answer; no request is sent to it for now",
                self.name()
            );
            return Err(error(reason::CIRCUIT_OPEN, &message).into());
        };
        let shared = self.shared_connection();
        let deadlines = &shared.deadlines;
        let connecting = deadlines.timeout_at(deadline, self.connection(&shared));
        let connection = match connecting.await {
            Ok(Ok(connection)) => connection,
            Ok(Err(cause)) => return Err(report_unsent(permit, cause.into())),
            Err(_) => return Err(report_unsent(permit, no_answer(&self.name()).into())),
        };
        let number = connection.number;
        let reply = deadlines.timeout_at(deadline, connection.send(command, asking));
        let (cause, answered) = match reply.await {
            Ok(Ok(value)) => {
                permit.record_answer();
                return Ok(value);
            }
            Ok(Err(cause)) => (call_error(&cause), is_server_error(&cause)),
            Err(_) => (CallError::Failed(no_answer(&self.name())), false),
        };
        // A late reply must not be taken for the next one. If the server has become a replica,
        // the primary is elsewhere.
        if !answered || matches!(cause, CallError::ReadOnly(_)) {
            shared.discard(number, &cause);
        }
        if answered {
            permit.record_answer();
        } else {
            permit.record_no_answer();
        }
        Err(cause)
    }

    /// Sends commands together, and returns the reply to each, which may be an error of the
    /// server. No decision waits for them, so the breaker neither stops them nor learns from them.
    pub(crate) async fn pipeline(
        self: &Arc<Self>,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, StoreError> {
        let shared = self.shared_connection();
        let connection = match timeout_at(deadline, self.connection(&shared)).await {
            Ok(connection) => connection?,
            Err(_) => return Err(no_answer(&self.name())),
        };
        let number = connection.number;
        let mut commands_of = connection.inner.commands;
        let replies = commands_of.send_packed_commands(commands, 0, commands.len());
        let cause = match timeout_at(deadline, replies).await {
            Ok(Ok(replies)) => return Ok(replies),
            Ok(Err(cause)) => call_error(&cause),
            Err(_) => CallError::Failed(no_answer(&self.name())),
        };
        shared.discard(number, &cause);
        Err(cause.into())
    }

    /// Drops the connection after a malformed reply, because the next reply may belong to another
    /// command.
    pub(crate) fn drop_connection(&self, cause: &StoreError) {
        let shared = self.shared_connection();
        let mut state = lock(&shared.state);
        if matches!(&*state, ConnectionState::Up(_)) {
            *state = ConnectionState::lost(cause.clone());
        }
    }

    /// Returns the connection, or waits for one.
    async fn connection(
        self: &Arc<Self>,
        shared: &Arc<SharedConnection>,
    ) -> Result<Connection, StoreError> {
        if let ServerLocation::Sentinels(sentinels) = &self.location {
            self.watch(sentinels);
        }
        let connecting = {
            let mut state = lock(&shared.state);
            match &*state {
                ConnectionState::Up(connection) if !connection.inner.is_closed() => {
                    return Ok(connection.clone());
                }
                ConnectionState::Connecting(connecting) => Arc::clone(connecting),
                ConnectionState::Down { until, cause, .. } if Instant::now() < *until => {
                    return Err(cause.clone());
                }
                ConnectionState::Up(_) | ConnectionState::Down { .. } => {
                    let back_off = match &*state {
                        ConnectionState::Down { back_off, .. } => *back_off,
                        _ => BACK_OFF,
                    };
                    let connecting = self.connect(shared, back_off);
                    *state = ConnectionState::Connecting(Arc::clone(&connecting));
                    connecting
                }
            }
        };
        match connecting.wait().await.clone() {
            Some(connected) => connected,
            None => {
                // The connecting task is gone, with its runtime.
                let cause = error(reason::REDIS_ERROR, "the attempt to connect was abandoned");
                *lock(&shared.state) = ConnectionState::lost(cause.clone());
                Err(cause)
            }
        }
    }

    /// Connects in the background, because other requests wait even if the first one is
    /// cancelled.
    fn connect(
        self: &Arc<Self>,
        shared: &Arc<SharedConnection>,
        mut back_off: BackOff,
    ) -> Arc<ConnectOutcome> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let outcome = Arc::<ConnectOutcome>::default();
        let attempt = ConnectAttempt(Arc::clone(&outcome));
        let (node, shared) = (Arc::clone(self), Arc::clone(shared));
        tokio::spawn(async move {
            let inner = match timeout(2 * CONNECT_TIMEOUT, node.location.connect()).await {
                Ok(inner) => inner,
                Err(_) => Err(no_answer(&node.name())),
            };
            let connected = inner.map(|(inner, term)| Connection {
                number: NUMBERS.fetch_add(1, Ordering::Relaxed),
                term,
                inner,
            });
            let mut state = lock(&shared.state);
            *state = match &connected {
                // Compared under the lock: `leave_old_primary` either ran before, which shows
                // here, or finds the connection up.
                Ok(connection) if node.is_outdated(connection) => {
                    ConnectionState::lost(replaced_primary())
                }
                Ok(connection) => ConnectionState::Up(connection.clone()),
                Err(cause) => ConnectionState::Down {
                    until: Instant::now() + back_off.next_wait(),
                    back_off,
                    cause: cause.clone(),
                },
            };
            drop(state);
            attempt.finish(connected);
        });
        outcome
    }

    /// Watches the sentinels, to leave a primary that they no longer name.
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

    /// Drops connections to a primary that the sentinels no longer name. Pending calls still get
    /// their replies. Without a connection, the next call connects at once, because another
    /// primary failed.
    fn leave_old_primary(&self) {
        self.connections.for_each(|shared| {
            let mut state = lock(&shared.state);
            match &*state {
                ConnectionState::Up(connection) if !self.is_outdated(connection) => {}
                ConnectionState::Connecting(_) => {}
                ConnectionState::Up(_) | ConnectionState::Down { .. } => {
                    *state = ConnectionState::lost(replaced_primary());
                }
            }
        });
    }

    /// Returns whether the sentinels name another primary than that of a connection.
    fn is_outdated(&self, connection: &Connection) -> bool {
        match &self.location {
            ServerLocation::Fixed(_) => false,
            ServerLocation::Sentinels(sentinels) => connection.term != sentinels.term(),
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
            // If it fails, the next call that lacks the script loads it again.
            match node.command(&load, false, deadline).await {
                Ok(_) => node.events.record_script_reload(&node.name()),
                Err(error) => node
                    .events
                    .record_script_reload_failure(&node.name(), error),
            }
            node.loading.store(false, Ordering::Release);
        });
    }

    fn shared_connection(&self) -> Arc<SharedConnection> {
        self.connections.current(|| SharedConnection {
            state: Mutex::new(ConnectionState::lost(error(
                reason::REDIS_ERROR,
                "not connected yet",
            ))),
            deadlines: Deadlines::default(),
        })
    }
}

impl SharedConnection {
    /// Drops a connection, if it is still the current one.
    fn discard(&self, number: u64, cause: &CallError) {
        let mut state = lock(&self.state);
        if matches!(&*state, ConnectionState::Up(connection) if connection.number == number) {
            *state = ConnectionState::lost(cause.clone().into());
        }
    }
}

impl ConnectionState {
    /// Returns a lost connection. The next request connects at once.
    fn lost(cause: StoreError) -> Self {
        Self::Down {
            until: Instant::now(),
            back_off: BACK_OFF,
            cause,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let ServerLocation::Sentinels(sentinels) = &self.location {
            sentinels.unwatch();
        }
    }
}

impl ServerLocation {
    /// Connects; returns the connection with its term.
    async fn connect(&self) -> Result<(ServerConnection, u64), StoreError> {
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
                .commands
                .send_packed_command(command)
                .await?
                .extract_error();
        }
        // ASKING holds for the very next command only.
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").ignore();
        both.add_command(command.clone());
        let mut replies = self
            .inner
            .commands
            .send_packed_commands(&both, 1, 1)
            .await?;
        replies.pop().unwrap_or(Value::Nil).extract_error()
    }
}

fn eval_command(name: &str, script: &str, call: &Call<'_>) -> Cmd {
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

fn replaced_primary() -> StoreError {
    error(reason::READONLY, "the sentinels name another primary")
}

/// Reports to the breaker an error before the command was sent.
fn report_unsent(permit: Permit<'_>, cause: CallError) -> CallError {
    match &cause {
        CallError::Failed(cause) if is_no_answer(cause.reason) => permit.record_no_answer(),
        _ => permit.record_answer(),
    }
    cause
}
