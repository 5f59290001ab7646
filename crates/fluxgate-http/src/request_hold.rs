//! The hold of a request: slots until the response ends, and charges to be settled.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fluxgate_core::renewal::{HoldKeeper, KeptHold};
use fluxgate_core::task::poll_once_or_spawn;
use fluxgate_core::{Settled, Settlement, StoreError};

/// How long to wait before each further try of a settlement in the background. A hold that is
/// no longer renewed lives for at least two thirds of its time.
const RETRIES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// The hold of a request whose rules take slots or whose charge is held.
///
/// The layer adds it to the extensions of the request, so that the inner service can settle it
/// with the real cost. If it does not, the charges stay as reserved. The slots are released
/// when the response body has ended or is dropped.
///
/// ```
/// use fluxgate_core::Settlement;
/// use fluxgate_http::RequestHold;
///
/// async fn answer(request: http::Request<String>) -> http::Response<String> {
///     let tokens = request.body().len() as u64;
///     if let Some(hold) = request.extensions().get::<RequestHold>() {
///         // The answer need not wait for the store if it fails.
///         let _ = hold.settle(Settlement::Cost(tokens)).await;
///     }
///     http::Response::new("done".into())
/// }
/// ```
#[derive(Clone)]
pub struct RequestHold(Arc<Mutex<Option<Box<dyn ErasedHold>>>>);

impl RequestHold {
    /// Creates the hold of a request from one that is kept.
    pub fn new<K: HoldKeeper>(kept: KeptHold<K>) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(kept)))))
    }

    /// Settles with the real cost and releases the slots. Returns `None` if the hold has
    /// ended: it was settled before, the response has ended, or it could not be renewed.
    ///
    /// # Errors
    /// If the store fails. The hold expires by itself then.
    pub async fn settle(&self, settlement: Settlement<'_>) -> Result<Option<Settled>, StoreError> {
        let Some(mut hold) = self.take() else {
            return Ok(None);
        };
        hold.settle(settlement).await
    }

    /// Settles the rules that count these attributes and releases the slots, without
    /// waiting for the store. If it fails, it is tried again: a hold is settled only once.
    pub fn settle_in_background<const N: usize>(&self, costs: [(&'static str, u64); N]) {
        if let Some(hold) = self.take() {
            poll_once_or_spawn(async move {
                settle_with_retries(hold, Settlement::Attributes(&costs)).await;
            });
        }
    }

    /// Returns all units and slots, without waiting for the store. If it fails, it is tried
    /// again.
    pub fn release_in_background(&self) {
        if let Some(hold) = self.take() {
            poll_once_or_spawn(settle_with_retries(hold, Settlement::RELEASE));
        }
    }

    /// Gives the slots back, unless the hold has ended.
    pub(crate) fn end(&self) {
        drop(self.take());
    }

    fn take(&self) -> Option<Box<dyn ErasedHold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Settles a hold, and tries again if the store fails: a hold is settled only once.
async fn settle_with_retries(mut hold: Box<dyn ErasedHold>, settlement: Settlement<'_>) {
    let mut settled = hold.settle(settlement).await;
    for pause in RETRIES {
        if settled.is_ok() {
            return;
        }
        tokio::time::sleep(pause).await;
        settled = hold.settle(settlement).await;
    }
    if let Err(error) = settled {
        tracing::warn!(%error, "cannot settle a request: it is charged as reserved");
    }
}

impl fmt::Debug for RequestHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHold").finish_non_exhaustive()
    }
}

type SettleFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Option<Settled>, StoreError>> + Send + 'a>>;

/// A hold on a store of any type.
trait ErasedHold: Send {
    fn settle<'a>(&'a mut self, settlement: Settlement<'a>) -> SettleFuture<'a>;

    /// Stops renewing the hold, and leaves it as it is.
    fn leave(self: Box<Self>);
}

impl<K: HoldKeeper> ErasedHold for KeptHold<K> {
    fn settle<'a>(&'a mut self, settlement: Settlement<'a>) -> SettleFuture<'a> {
        Box::pin(KeptHold::settle(self, settlement))
    }

    fn leave(self: Box<Self>) {
        KeptHold::leave(*self);
    }
}

/// Renews the hold of a request while it waits, so that neither its slots nor its charge expire
/// before it proceeds. When it is dropped, the hold is as it was.
#[derive(Debug)]
pub(crate) struct HeldWhileWaiting(Option<RequestHold>);

impl HeldWhileWaiting {
    pub(crate) fn new(hold: Option<RequestHold>) -> Self {
        Self(hold)
    }
}

impl Drop for HeldWhileWaiting {
    fn drop(&mut self) {
        if let Some(hold) = self.0.take().and_then(|hold| hold.take()) {
            hold.leave();
        }
    }
}

/// Ends holds when it is dropped, even if the inner service has kept clones of them.
#[derive(Debug, Default)]
pub struct HeldUntilDropped(Vec<RequestHold>);

impl HeldUntilDropped {
    /// Adds a hold.
    pub fn push(&mut self, hold: RequestHold) {
        self.0.push(hold);
    }

    /// Ends the holds now.
    pub fn end(&mut self) {
        for hold in self.0.drain(..) {
            hold.end();
        }
    }

    /// Leaves the holds to their clones: they end with the last of them.
    pub fn leave(&mut self) {
        self.0.clear();
    }
}

impl From<Option<RequestHold>> for HeldUntilDropped {
    fn from(hold: Option<RequestHold>) -> Self {
        Self(hold.into_iter().collect())
    }
}

impl Drop for HeldUntilDropped {
    fn drop(&mut self) {
        self.end();
    }
}
