//! Bounds the connections to upstreams, over all cores and upstreams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fluxgate_http::server::{DescriptorPermit, DescriptorShare};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::config::Limits;
use crate::error::GatewayError;

/// How many requests a connection over HTTP/2 carries at a time, if the server allows as many.
pub(crate) const MAX_STREAMS: usize = 128;

/// Bounds the connections to upstreams, and those that are held by requests with an
/// incomplete body: a client decides how long that takes.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    limit: Arc<Semaphore>,
    descriptors: DescriptorShare,
    /// At most half of the connections are for requests with an incomplete body.
    open_bodies: Arc<Semaphore>,
    /// At most half of the requests that connections over HTTP/2 can carry.
    open_streams: Arc<Semaphore>,
    /// The number of requests that wait for a connection.
    waiting: AtomicUsize,
    /// Notified when a request has to wait.
    pub(super) wanted: Notify,
}

/// A connection that may be open until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _limit: OwnedSemaphorePermit,
    _descriptor: DescriptorPermit,
}

/// What carries a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// A connection over HTTP/1.1.
    Connection,
    /// A stream of a connection over HTTP/2.
    Stream,
}

/// A request with an incomplete body that may hold its carrier until this is dropped.
pub(crate) type OpenBodyPermit = OwnedSemaphorePermit;

impl ConnectionLimit {
    pub(crate) fn new(limits: &Limits, descriptors: DescriptorShare) -> Self {
        let limit = limits.upstream_connections.map_or(usize::MAX, |limit| {
            usize::try_from(limit.get()).unwrap_or(usize::MAX)
        });
        let limit = limit.min(descriptors.max());
        Self {
            limit: Arc::new(Semaphore::new(limit)),
            descriptors,
            open_bodies: Arc::new(Semaphore::new(limit.div_ceil(2))),
            open_streams: Arc::new(Semaphore::new(
                limit
                    .div_ceil(2)
                    .saturating_mul(MAX_STREAMS)
                    .min(Semaphore::MAX_PERMITS),
            )),
            waiting: AtomicUsize::new(0),
            wanted: Notify::new(),
        }
    }

    /// Waits until another connection may be opened. To make room, every core closes idle
    /// connections in the meantime.
    pub(crate) async fn acquire(
        &self,
        timeout: Duration,
    ) -> Result<ConnectionPermit, GatewayError> {
        if let Some(permit) = self.try_acquire() {
            return Ok(permit);
        }
        let _waiting = WaitCount::new(&self.waiting);
        self.wanted.notify_waiters();
        let permit = async {
            let limit = Arc::clone(&self.limit).acquire_owned().await;
            Some(ConnectionPermit {
                _limit: limit.ok()?,
                _descriptor: self.descriptors.acquire().await,
            })
        };
        let permit = tokio::time::timeout(timeout, permit).await;
        permit.ok().flatten().ok_or(GatewayError::Busy)
    }

    fn try_acquire(&self) -> Option<ConnectionPermit> {
        Some(ConnectionPermit {
            _limit: Arc::clone(&self.limit).try_acquire_owned().ok()?,
            _descriptor: self.descriptors.try_acquire()?,
        })
    }

    /// Waits until another request with an incomplete body may hold its carrier.
    pub(crate) async fn acquire_open_body(
        &self,
        carrier: Carrier,
        timeout: Duration,
    ) -> Result<OpenBodyPermit, GatewayError> {
        let semaphore = match carrier {
            Carrier::Connection => &self.open_bodies,
            Carrier::Stream => &self.open_streams,
        };
        let permit = Arc::clone(semaphore).acquire_owned();
        let permit = tokio::time::timeout(timeout, permit).await;
        permit.ok().and_then(Result::ok).ok_or(GatewayError::Busy)
    }

    /// Returns the number of requests that wait for a connection. While there are any, no
    /// connection should be kept idle.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Counts a request as waiting until it is dropped.
struct WaitCount<'a>(&'a AtomicUsize);

impl<'a> WaitCount<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
