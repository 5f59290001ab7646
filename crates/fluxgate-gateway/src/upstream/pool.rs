//! Idle connections to upstreams. Each core has its own.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::connection_limit::ConnectionLimit;
use super::http2;
use super::route_upstream::ServerState;
use super::server::{Upstream, UpstreamStream};

/// How many idle connections a core keeps to an upstream.
const MAX_IDLE: usize = 256;
/// How often each core looks for connections to close.
const INTERVAL: Duration = Duration::from_secs(1);

/// A connection, and since when it is idle.
type IdleConnection = (UpstreamStream, Instant);

/// The idle connections to one server. The one that was used last is at the end.
#[derive(Debug)]
struct IdlePool {
    server: Arc<ServerState>,
    idle: VecDeque<IdleConnection>,
}

thread_local! {
    /// By the number of the server.
    static IDLE: RefCell<BTreeMap<usize, IdlePool>> = const { RefCell::new(BTreeMap::new()) };
}

/// Takes the connection to this upstream that was used last and is still open.
pub(crate) fn take(upstream: &Upstream) -> Option<UpstreamStream> {
    IDLE.with_borrow_mut(|all| {
        let IdlePool { idle, .. } = all.get_mut(&upstream.number)?;
        loop {
            let (mut stream, _) = idle.pop_back()?;
            if stream.is_open() {
                return Some(stream);
            }
        }
    })
}

/// Keeps a connection for the next request, unless another request waits for its permit, or the
/// server has been removed from the configuration.
pub(crate) fn put(upstream: &Upstream, stream: UpstreamStream, limit: &ConnectionLimit) {
    if limit.waiting() > 0 || upstream.server.is_removed() {
        return;
    }
    // When the thread ends, there is no next request.
    let _ = IDLE.try_with(|all| {
        let mut all = all.borrow_mut();
        let pool = all.entry(upstream.number).or_insert_with(|| IdlePool {
            server: Arc::clone(&upstream.server),
            idle: VecDeque::new(),
        });
        let idle = &mut pool.idle;
        idle.push_back((stream, Instant::now()));
        if idle.len() > MAX_IDLE {
            idle.pop_front();
        }
    });
}

/// Closes connections of this core: those that have been idle for `timeout`, those to servers that
/// have been removed, and as many others as requests wait for a permit. Never returns.
pub(crate) async fn close_idle(limit: &ConnectionLimit, timeout: impl Fn() -> Duration) {
    let mut next = Instant::now();
    loop {
        let mut wanted = std::pin::pin!(limit.wanted.notified());
        // Requests that begin to wait from now on are noticed.
        wanted.as_mut().enable();
        close_oldest(limit.waiting());
        tokio::select! {
            () = wanted => {}
            () = tokio::time::sleep_until(next) => {
                let timeout = timeout();
                close_expired(timeout);
                http2::close_expired(timeout);
                next = Instant::now() + INTERVAL.min(timeout);
            }
        }
    }
}

/// Closes those that have been idle for `timeout`, those that the upstream has closed, and those to
/// servers that have been removed.
fn close_expired(timeout: Duration) {
    let oldest = Instant::now().checked_sub(timeout);
    IDLE.with_borrow_mut(|all| {
        all.retain(|_, IdlePool { server, idle }| {
            idle.retain_mut(|(stream, since)| {
                oldest.is_none_or(|oldest| *since > oldest) && stream.is_open()
            });
            !server.is_removed()
        });
    });
}

/// Closes up to `count`, the longest idle first.
fn close_oldest(count: usize) {
    IDLE.with_borrow_mut(|all| {
        for _ in 0..count {
            let idle = all.values_mut().map(|pool| &mut pool.idle);
            let idle = idle.filter(|idle| !idle.is_empty());
            let oldest = idle.min_by_key(|idle| idle.front().map(|(_, since)| *since));
            if let Some(oldest) = oldest {
                oldest.pop_front();
            } else if !http2::close_one_idle() {
                break;
            }
        }
    });
}
