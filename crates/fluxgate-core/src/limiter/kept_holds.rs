//! Holds of requests that are still running: renewed until they end, all in one call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::Limiter;
use crate::background;
use crate::decision::Decision;
use crate::hold::{HoldId, Settled, Settlement};
use crate::limit::Algorithm;
use crate::store::{Store, StoreError};
use crate::time::Micros;

/// The holds that this limiter keeps.
#[derive(Debug, Default)]
pub(super) struct KeptHolds {
    kept: Mutex<Kept>,
    /// Wakes the task that renews them, because one must be renewed sooner.
    sooner: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Kept {
    /// How long each is renewed for.
    holds: HashMap<HoldId, Micros>,
    /// The task that renews them. It ends with its runtime.
    renewal: Option<AbortHandle>,
}

impl Kept {
    /// Returns how long to wait before they are renewed: a third of the shortest hold.
    fn pause(&self) -> Option<Duration> {
        let shortest = self.holds.values().min()?;
        Some(shortest.as_duration() / 3)
    }
}

impl KeptHolds {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store + 'static> Limiter<S> {
    /// Keeps the hold of a decision until it is dropped: it is renewed as long as the request
    /// runs. Returns `None` if there is no hold.
    ///
    /// Without a Tokio runtime it is not renewed.
    #[doc(hidden)]
    pub fn keep_hold(&self, decision: &Decision) -> Option<KeptHold<S>> {
        let id = decision.hold()?;
        let slots = decision.bands().map(|(_, band)| band.limit());
        let slots = slots.filter(|limit| limit.algorithm() == Algorithm::Concurrency);
        let span = slots.map(|limit| limit.window()).min();
        let span = span.unwrap_or(crate::hold::DEFAULT_HOLD);
        let is_sooner = {
            let mut kept = self.0.kept.lock();
            let before = kept.pause();
            kept.holds.insert(id, span);
            let is_renewed = { kept.renewal.as_ref() }.is_some_and(|task| !task.is_finished());
            if !is_renewed && let Ok(runtime) = Handle::try_current() {
                let renewal = runtime.spawn(self.clone().renew_kept());
                kept.renewal = Some(renewal.abort_handle());
            }
            before.is_some() && kept.pause() < before
        };
        if is_sooner {
            self.0.kept.sooner.notify_one();
        }
        Some(KeptHold {
            id: Some(id),
            limiter: self.clone(),
        })
    }

    /// Returns the number of holds that are kept.
    #[doc(hidden)]
    pub fn kept_holds(&self) -> usize {
        self.0.kept.lock().holds.len()
    }

    /// Renews the kept holds until there are none.
    async fn renew_kept(self) {
        loop {
            let pause = {
                let mut kept = self.0.kept.lock();
                let Some(pause) = kept.pause() else {
                    // The next hold starts another task.
                    kept.renewal = None;
                    return;
                };
                pause
            };
            let sooner = self.0.kept.sooner.notified();
            if tokio::time::timeout(pause, sooner).await.is_ok() {
                continue;
            }
            let holds: Vec<_> = {
                let kept = self.0.kept.lock();
                kept.holds.iter().map(|(id, span)| (*id, *span)).collect()
            };
            // If it fails, the next try may be in time: there are three in a hold.
            let Ok(renewed) = self.renew_all(&holds).await else {
                continue;
            };
            let ended = holds.iter().zip(renewed).filter(|(_, renewed)| !renewed);
            let mut kept = self.0.kept.lock();
            let ended = ended.filter(|((id, _), _)| kept.holds.remove(id).is_some());
            let expired = ended.count();
            drop(kept);
            if expired > 0 {
                self.each_observer(|observer| observer.holds_expired(expired));
            }
        }
    }
}

/// The hold of a request that is running. When it is dropped, its slots are given back, and its
/// charges stay as they were reserved.
#[derive(Debug)]
#[must_use = "a hold that is dropped gives its slots back"]
pub struct KeptHold<S: Store + 'static> {
    /// `None` if it is settled.
    id: Option<HoldId>,
    limiter: Limiter<S>,
}

impl<S: Store + 'static> KeptHold<S> {
    /// Settles with the real cost. Returns `None` if the hold has expired.
    pub async fn settle(
        mut self,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        let Some(id) = self.id.take() else {
            return Ok(None);
        };
        end(self.limiter.clone(), id, settlement).await
    }
}

impl<S: Store + 'static> Drop for KeptHold<S> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let limiter = self.limiter.clone();
        let at_once = limiter.0.store.answers_at_once();
        let release = async move {
            // If it fails, the hold expires: it is no longer renewed.
            let _ = end(limiter, id, Settlement::AsReserved).await;
        };
        background::run(release, at_once);
    }
}

/// Ends a hold that is no longer kept.
async fn end<S: Store + 'static>(
    limiter: Limiter<S>,
    id: HoldId,
    settlement: Settlement<'_>,
) -> Result<Option<Settled>, StoreError> {
    let was_kept = limiter.0.kept.lock().holds.remove(&id).is_some();
    let settled = limiter.settle(id, settlement).await?;
    if settled.is_none() && was_kept {
        limiter.each_observer(|observer| observer.settled_late());
    }
    Ok(settled)
}
