//! Connections to upstreams that wait for the next request. Each core has its
//! own, and asks no other.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::request::Parts;
use hyper::client::conn::http1::SendRequest;
use tokio::time::Instant;

use super::request_body::RequestBody;
use super::upstream_connections::UpstreamConnections;

/// How many a core keeps to one upstream.
const MOST_IDLE: usize = 256;
/// A connection that has carried a larger head is not kept: it would keep the
/// memory for it, too.
const LARGE_HEAD: usize = 16 * 1024;

/// A connection to an upstream.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<RequestBody>,
    /// The upstream's number.
    pub(super) upstream: usize,
    /// How much has been read from it.
    pub(super) read: Arc<AtomicU64>,
    /// All there are.
    pub(super) connections: Arc<UpstreamConnections>,
    /// Whether it has carried a large head.
    pub(super) has_grown: bool,
}

#[derive(Debug)]
struct Idle {
    since: Instant,
    connection: Connection,
}

thread_local! {
    /// By the upstream's number; those that waited longest first.
    static IDLE: RefCell<Vec<Vec<Idle>>> = const { RefCell::new(Vec::new()) };
}

impl Connection {
    /// The one to this upstream that has waited for the shortest time.
    pub(super) fn waiting(upstream: usize) -> Option<Self> {
        IDLE.with_borrow_mut(|all| {
            let idle = all.get_mut(upstream)?;
            std::iter::from_fn(|| idle.pop())
                .map(|idle| idle.connection)
                .find(|connection| !connection.sender.is_closed())
        })
    }

    /// Notes that it carries a request with this head.
    pub(super) fn carry(&mut self, head: &Parts) {
        let lines = head.headers.iter();
        let bytes: usize = lines
            .map(|(name, value)| name.as_str().len() + value.len())
            .sum();
        let target = head.uri.path_and_query().map_or(0, |it| it.as_str().len());
        self.has_grown |= bytes + target > LARGE_HEAD;
    }

    /// How much has been read from it so far.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Leaves it to the next request, unless another needs its place.
    pub(super) fn leave(self) {
        if self.sender.is_closed() || self.has_grown || self.connections.is_wanted() {
            return;
        }
        // When the thread ends there is no next one.
        let _ = IDLE.try_with(|all| {
            let all = &mut *all.borrow_mut();
            if all.len() <= self.upstream {
                all.resize_with(self.upstream + 1, Vec::new);
            }
            let idle = &mut all[self.upstream];
            if idle.len() == MOST_IDLE {
                idle.remove(0);
            }
            idle.push(Idle {
                since: Instant::now(),
                connection: self,
            });
        });
    }
}

/// Closes those of this core that have been idle for `longest`, and those that are
/// closed already.
pub(super) fn close_expired(longest: Duration) {
    IDLE.with_borrow_mut(|all| {
        for idle in all {
            idle.retain(|it| it.since.elapsed() < longest && !it.connection.sender.is_closed());
        }
    });
}

/// Closes up to `count` of this core, first those that have been idle for longest.
pub(super) fn close_oldest(count: usize) {
    IDLE.with_borrow_mut(|all| {
        for _ in 0..count {
            let firsts = all.iter_mut();
            let firsts = firsts.filter(|idle| !idle.is_empty());
            match firsts.min_by_key(|idle| idle[0].since) {
                Some(idle) => drop(idle.remove(0)),
                None => break,
            }
        }
    });
}
