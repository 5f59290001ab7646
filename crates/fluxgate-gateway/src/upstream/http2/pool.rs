//! The connections to an upstream over HTTP/2. Each core has its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::connection::{Http2Connection, StreamSlot};
use crate::error::GatewayError;
use crate::upstream::route_upstream::ServerState;
use crate::upstream::server::Upstream;

/// A server, and the connections of this core to it.
type ServerPool = (Arc<ServerState>, Arc<Http2Pool>);

thread_local! {
    /// By the number of the server.
    static POOLS: RefCell<BTreeMap<usize, ServerPool>> = const { RefCell::new(BTreeMap::new()) };
}

/// The connections of a core to one upstream.
#[derive(Debug, Default)]
pub(crate) struct Http2Pool {
    state: Mutex<PoolState>,
    /// Notified when a place for a request becomes free, and when an attempt to connect has ended.
    pub(crate) changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct PoolState {
    open: Vec<PooledConnection>,
    /// The number of attempts to connect so far.
    dialed: u64,
    is_dialing: bool,
    /// The last attempt, if it failed, and why.
    failed: Option<(u64, DialFailure)>,
}

#[derive(Debug)]
struct PooledConnection {
    connection: Arc<Http2Connection>,
    /// Since when it has carried no request, and after how many.
    idle: (Instant, usize),
}

/// An attempt to connect. While there is one, other requests wait for its result.
#[derive(Debug)]
pub(crate) struct DialAttempt {
    pool: Arc<Http2Pool>,
    is_finished: bool,
}

/// Why an attempt to connect failed.
#[derive(Clone, Debug)]
pub(crate) enum DialFailure {
    /// All connections to upstreams are in use.
    Busy,
    /// The server cannot be reached.
    Unreachable(io::ErrorKind, Arc<str>),
    /// The server takes no requests over HTTP/2.
    Unusable(&'static str),
}

impl DialFailure {
    /// Returns the failure of a connection attempt.
    pub(crate) fn connecting(error: &io::Error) -> Self {
        Self::Unreachable(error.kind(), error.to_string().into())
    }

    /// Returns the error of the requests that wait for the connection.
    pub(crate) fn error(&self) -> GatewayError {
        match self {
            Self::Busy => GatewayError::Busy,
            Self::Unreachable(kind, why) => GatewayError::connecting(io::Error::new(*kind, &**why)),
            Self::Unusable(why) => GatewayError::BadResponse(why),
        }
    }
}

impl Http2Pool {
    /// Returns the connections of this core to an upstream.
    pub(crate) fn of(upstream: &Upstream) -> Arc<Self> {
        POOLS.with_borrow_mut(|all| {
            let pool = all.entry(upstream.number);
            let (_, pool) = pool.or_insert_with(|| (Arc::clone(&upstream.server), Arc::default()));
            Arc::clone(pool)
        })
    }

    /// Reserves a place for a request on an open connection.
    pub(crate) fn reserve(&self) -> Option<StreamSlot> {
        let mut state = self.lock();
        state.open.retain(|pooled| pooled.connection.is_open());
        // The first ones are filled first, so that the last ones can be closed.
        state
            .open
            .iter()
            .find_map(|pooled| pooled.connection.reserve())
    }

    /// Adds a connection.
    pub(crate) fn insert(&self, connection: Arc<Http2Connection>) {
        let idle = (Instant::now(), 0);
        self.lock().open.push(PooledConnection { connection, idle });
    }

    /// Returns the number of the attempt to connect that is being made. If it is a new one, the
    /// caller makes it.
    pub(crate) fn dial(self: &Arc<Self>) -> (u64, Option<DialAttempt>) {
        let mut state = self.lock();
        if state.is_dialing {
            return (state.dialed, None);
        }
        state.is_dialing = true;
        state.dialed += 1;
        let attempt = DialAttempt {
            pool: Arc::clone(self),
            is_finished: false,
        };
        (state.dialed, Some(attempt))
    }

    /// Returns why an attempt to connect failed, if it did.
    pub(crate) fn failure_of(&self, attempt: u64) -> Option<DialFailure> {
        let state = self.lock();
        let (number, failure) = state.failed.as_ref()?;
        (*number >= attempt).then(|| failure.clone())
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DialAttempt {
    /// Ends the attempt; its result is in place already if it succeeded.
    pub(crate) fn finish(mut self, result: Result<(), DialFailure>) {
        self.end(result.err());
    }

    fn end(&mut self, failure: Option<DialFailure>) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        let mut state = self.pool.lock();
        state.is_dialing = false;
        let number = state.dialed;
        state.failed = failure.map(|failure| (number, failure));
        drop(state);
        self.pool.changed.notify_waiters();
    }
}

impl Drop for DialAttempt {
    fn drop(&mut self) {
        self.end(Some(DialFailure::Unusable("no connection was made")));
    }
}

/// Closes connections of this core that have been idle for `timeout`, and, once their last request
/// has ended, those that take no more and those to servers that have been removed.
pub(crate) fn close_expired(timeout: Duration) {
    POOLS.with_borrow_mut(|all| all.retain(|_, (server, _)| !server.is_removed()));
    let now = Instant::now();
    for_each_pool(|state| {
        state.open.retain_mut(|pooled| {
            let (_, before) = pooled.idle;
            match pooled.connection.idle_after() {
                Some(begun) if begun == before => {}
                // It has been used since the last look.
                used => pooled.idle = (now, used.unwrap_or(before)),
            }
            let is_expired = now.duration_since(pooled.idle.0) >= timeout;
            pooled.connection.is_open() && !is_expired
        });
    });
}

/// Closes an idle connection of this core, if there is one.
pub(crate) fn close_one_idle() -> bool {
    let mut is_closed = false;
    for_each_pool(|state| {
        let is_idle = |pooled: &PooledConnection| pooled.connection.idle_after().is_some();
        if !is_closed && let Some(at) = state.open.iter().rposition(is_idle) {
            state.open.remove(at);
            is_closed = true;
        }
    });
    is_closed
}

fn for_each_pool(mut visit: impl FnMut(&mut PoolState)) {
    POOLS.with_borrow(|all| {
        for (_, pool) in all.values() {
            visit(&mut pool.lock());
        }
    });
}
