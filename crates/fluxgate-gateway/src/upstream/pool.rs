//! Idle connections to upstreams. Each core has its own.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::connection_limit::ConnectionLimit;
use super::http2;
use super::server::UpstreamStream;

/// How many idle connections a core keeps to an upstream.
const MAX_IDLE: usize = 256;
/// How often each core looks for connections to close.
const INTERVAL: Duration = Duration::from_secs(1);

/// A connection, and since when it is idle.
type IdleConnection = (UpstreamStream, Instant);

thread_local! {
    /// By the number of the upstream; the connection that was used last is at the end.
    static IDLE: RefCell<Vec<VecDeque<IdleConnection>>> = const { RefCell::new(Vec::new()) };
}

/// Takes the connection to this upstream that was used last and is still open.
pub(crate) fn take(upstream: usize) -> Option<UpstreamStream> {
    IDLE.with_borrow_mut(|all| {
        let idle = all.get_mut(upstream)?;
        loop {
            let (mut stream, _) = idle.pop_back()?;
            if stream.is_open() {
                return Some(stream);
            }
        }
    })
}

/// Keeps a connection for the next request, unless another request waits for its permit.
pub(crate) fn put(upstream: usize, stream: UpstreamStream, limit: &ConnectionLimit) {
    if limit.waiting() > 0 {
        return;
    }
    // When the thread ends, there is no next request.
    let _ = IDLE.try_with(|all| {
        let all = &mut *all.borrow_mut();
        if all.len() <= upstream {
            all.resize_with(upstream + 1, VecDeque::new);
        }
        let idle = &mut all[upstream];
        idle.push_back((stream, Instant::now()));
        if idle.len() > MAX_IDLE {
            idle.pop_front();
        }
    });
}

/// Closes connections of this core: those that have been idle for `timeout`, and as many
/// others as requests wait for a permit. Never returns.
pub(crate) async fn close_idle(limit: &ConnectionLimit, timeout: Duration) {
    let mut interval = tokio::time::interval(INTERVAL.min(timeout));
    loop {
        let mut wanted = std::pin::pin!(limit.wanted.notified());
        // Requests that begin to wait from now on are noticed.
        wanted.as_mut().enable();
        close_oldest(limit.waiting());
        tokio::select! {
            () = wanted => {}
            _ = interval.tick() => {
                close_expired(timeout);
                http2::close_expired(timeout);
            }
        }
    }
}

/// Closes those that have been idle for `timeout`, and those that the upstream has closed.
fn close_expired(timeout: Duration) {
    let oldest = Instant::now().checked_sub(timeout);
    IDLE.with_borrow_mut(|all| {
        for idle in all {
            idle.retain_mut(|(stream, since)| {
                oldest.is_none_or(|oldest| *since > oldest) && stream.is_open()
            });
        }
    });
}

/// Closes up to `count`, the longest idle first.
fn close_oldest(count: usize) {
    IDLE.with_borrow_mut(|all| {
        for _ in 0..count {
            let idle = all.iter_mut().filter(|idle| !idle.is_empty());
            let oldest = idle.min_by_key(|idle| idle.front().map(|(_, since)| *since));
            if let Some(oldest) = oldest {
                oldest.pop_front();
            } else if !http2::close_one_idle() {
                break;
            }
        }
    });
}
