//! Holds of requests that are still running: renewed until they end, all in one call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::hold::{HoldId, Settled, Settlement};
use crate::store::StoreError;
use crate::task;
use crate::time::Micros;

/// Keeps holds: a limiter, or a client of a remote service.
pub trait HoldKeeper: Clone + Send + Sync + 'static {
    /// Returns the holds that are kept.
    fn kept(&self) -> &HoldRenewals;

    /// Settles a hold. Returns `None` if it has ended.
    fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> impl Future<Output = Result<Option<Settled>, StoreError>> + Send;

    /// Extends each hold to its span from now. Returns for each whether it is still held.
    fn renew_all(
        &self,
        holds: &[(HoldId, Micros)],
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Records that a hold has ended while its request was running.
    fn hold_expired(&self, hold: HoldId);

    /// Returns whether it answers without being awaited.
    fn answers_at_once(&self) -> bool;

    /// Keeps a hold until it is dropped: it is renewed for `span` as long as the request runs.
    ///
    /// Without a Tokio runtime it is not renewed.
    fn keep(&self, hold: HoldId, span: Micros) -> KeptHold<Self> {
        let is_sooner = {
            let mut kept = self.kept().lock();
            let is_sooner = kept.holds.is_empty() || span < kept.shortest;
            if is_sooner {
                kept.shortest = span;
            }
            kept.holds.insert(hold, span);
            let is_renewed = { kept.renewal.as_ref() }.is_some_and(|task| !task.is_finished());
            if !is_renewed && let Ok(runtime) = Handle::try_current() {
                let renewal = runtime.spawn(renew_kept(self.clone()));
                kept.renewal = Some(renewal.abort_handle());
            }
            is_sooner && is_renewed
        };
        if is_sooner {
            self.kept().sooner.notify_one();
        }
        KeptHold {
            id: Some(hold),
            keeper: self.clone(),
        }
    }
}

/// The holds that a keeper keeps.
#[derive(Debug, Default)]
pub struct HoldRenewals {
    kept: Mutex<RenewalList>,
    /// Wakes the task that renews them, because one must be renewed sooner.
    sooner: Arc<Notify>,
}

#[derive(Debug, Default)]
struct RenewalList {
    /// How long each is renewed for.
    holds: HashMap<HoldId, Micros>,
    /// None of them is renewed for a shorter time.
    shortest: Micros,
    /// The task that renews them. It ends with its runtime.
    renewal: Option<AbortHandle>,
}

impl HoldRenewals {
    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.lock().holds.len()
    }

    fn lock(&self) -> MutexGuard<'_, RenewalList> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how long to wait before they are renewed: a third of the shortest hold. Ends the
    /// renewal if there are none.
    fn pause(&self) -> Option<Duration> {
        let mut kept = self.lock();
        if kept.holds.is_empty() {
            // The next hold starts another task.
            kept.renewal = None;
            return None;
        }
        Some(kept.shortest.as_duration() / 3)
    }

    /// Returns all of them.
    fn list(&self) -> Vec<(HoldId, Micros)> {
        let mut kept = self.lock();
        let shortest = kept.holds.values().min().copied();
        kept.shortest = shortest.unwrap_or_default();
        kept.holds.iter().map(|(id, span)| (*id, *span)).collect()
    }

    /// Keeps a hold no longer. Returns whether it was kept.
    fn remove(&self, hold: HoldId) -> bool {
        self.lock().holds.remove(&hold).is_some()
    }
}

/// Renews the kept holds until there are none.
async fn renew_kept<K: HoldKeeper>(keeper: K) {
    // Once set it only comes sooner: a short hold that comes and goes must not put off the
    // renewal of the others.
    let mut due: Option<Instant> = None;
    while let Some(pause) = keeper.kept().pause() {
        let after_pause = Instant::now() + pause;
        let next = due.map_or(after_pause, |due| due.min(after_pause));
        due = Some(next);
        let sooner = keeper.kept().sooner.notified();
        if tokio::time::timeout_at(next, sooner).await.is_ok() {
            continue;
        }
        due = None;
        let holds = keeper.kept().list();
        // If it fails, the next try may be in time: there are three in a hold.
        let Ok(renewed) = keeper.renew_all(&holds).await else {
            continue;
        };
        let ended = holds.iter().zip(renewed).filter(|(_, renewed)| !renewed);
        for ((id, _), _) in ended {
            // Unless its request has ended in the meantime.
            if keeper.kept().remove(*id) {
                keeper.hold_expired(*id);
            }
        }
    }
}

/// The hold of a request that is running. When it is dropped, its slots are released, and its
/// charges stay as they were reserved.
#[derive(Debug)]
#[must_use = "a hold that is dropped releases its slots"]
pub struct KeptHold<K: HoldKeeper> {
    /// `None` if it is settled.
    id: Option<HoldId>,
    keeper: K,
}

impl<K: HoldKeeper> KeptHold<K> {
    /// Settles with the real cost. Returns `None` if the hold has expired.
    ///
    /// If that fails, it can be tried again: a hold is settled once. It is no longer renewed.
    pub async fn settle(
        &mut self,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        let Some(id) = self.id else {
            return Ok(None);
        };
        self.keeper.kept().remove(id);
        let settled = self.keeper.settle(id, settlement).await?;
        self.id = None;
        Ok(settled)
    }

    /// Stops renewing it, and leaves it as it is.
    pub fn leave(mut self) {
        if let Some(id) = self.id.take() {
            self.keeper.kept().remove(id);
        }
    }
}

impl<K: HoldKeeper> Drop for KeptHold<K> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        self.keeper.kept().remove(id);
        let keeper = self.keeper.clone();
        let at_once = keeper.answers_at_once();
        let release = async move {
            // If it fails, the hold expires: it is no longer renewed.
            let _ = keeper.settle(id, Settlement::AsReserved).await;
        };
        task::run(release, at_once);
    }
}
