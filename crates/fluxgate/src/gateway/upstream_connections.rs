//! How many connections to upstreams there may be, over all cores and upstreams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::{express, pool};
use crate::config::Limits;
use crate::http::{DescriptorPermit, DescriptorShare};

/// How often each core closes idle connections that are of no use any more.
const OFTEN: Duration = Duration::from_secs(1);

/// Bounds the connections to upstreams, and those of them that a request holds
/// whose body has not come as a whole: a client decides how long that takes.
#[derive(Debug)]
pub(super) struct UpstreamConnections {
    limit: Arc<Semaphore>,
    descriptors: DescriptorShare,
    /// Half of them at most are for requests whose body is still to come.
    open_bodies: Arc<Semaphore>,
    /// Requests that wait for a connection.
    waiting: AtomicUsize,
    /// Notified when a request has to wait.
    wanted: Notify,
}

/// A connection to an upstream that may be open until this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    _limit: OwnedSemaphorePermit,
    _descriptor: DescriptorPermit,
}

/// The right of a request to hold a connection before its body has come as a whole.
pub(super) type OpenBodyPermit = OwnedSemaphorePermit;

/// There are too many requests under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy;

impl UpstreamConnections {
    pub(super) fn new(limits: &Limits, descriptors: DescriptorShare) -> Self {
        let limit = limits.upstream_connections.map_or(usize::MAX, |limit| {
            usize::try_from(limit.get()).unwrap_or(usize::MAX)
        });
        let limit = limit.min(descriptors.max());
        Self {
            limit: Arc::new(Semaphore::new(limit)),
            descriptors,
            open_bodies: Arc::new(Semaphore::new(limit.div_ceil(2))),
            waiting: AtomicUsize::new(0),
            wanted: Notify::new(),
        }
    }

    /// Waits until another connection may be opened, for at most `within`. Idle
    /// connections, of any core and to any upstream, are closed for it.
    pub(super) async fn acquire(&self, within: Duration) -> Result<ConnectionPermit, Busy> {
        if let Some(permit) = self.try_acquire() {
            return Ok(permit);
        }
        let _waiting = Waiting::new(&self.waiting);
        self.wanted.notify_waiters();
        let permit = async {
            let limit = Arc::clone(&self.limit).acquire_owned().await;
            Some(ConnectionPermit {
                _limit: limit.ok()?,
                _descriptor: self.descriptors.acquire().await,
            })
        };
        let permit = tokio::time::timeout(within, permit).await;
        permit.ok().flatten().ok_or(Busy)
    }

    fn try_acquire(&self) -> Option<ConnectionPermit> {
        Some(ConnectionPermit {
            _limit: Arc::clone(&self.limit).try_acquire_owned().ok()?,
            _descriptor: self.descriptors.try_acquire()?,
        })
    }

    /// Waits for the right to hold a connection before the body of the request has
    /// come as a whole, for at most `within`.
    pub(super) async fn acquire_open_body(&self, within: Duration) -> Result<OpenBodyPermit, Busy> {
        let permit = Arc::clone(&self.open_bodies).acquire_owned();
        let permit = tokio::time::timeout(within, permit).await;
        permit.ok().and_then(Result::ok).ok_or(Busy)
    }

    /// Whether a request waits for a connection, so that none should be kept idle.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Closes idle connections of this core: those that have been idle for `idle`,
    /// and as many others as requests wait. Runs for ever.
    pub(super) async fn close_idle(&self, idle: Duration) {
        let mut often = tokio::time::interval(OFTEN.min(idle));
        loop {
            let mut wanted = std::pin::pin!(self.wanted.notified());
            // Requests that begin to wait from now on are noticed.
            wanted.as_mut().enable();
            let count = self.waiting.load(Ordering::Relaxed);
            let closed = express::close_oldest(count);
            pool::close_oldest(count.saturating_sub(closed));
            tokio::select! {
                () = wanted => {}
                _ = often.tick() => {
                    express::close_expired(idle);
                    pool::close_expired(idle);
                }
            }
        }
    }
}

/// Counts a request as waiting until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
