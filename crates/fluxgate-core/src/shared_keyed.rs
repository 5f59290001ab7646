//! Limits for keys that several processes share, without rules.

use std::sync::Arc;
use std::time::Duration;

use crate::ad_hoc::AdHocKey;
use crate::algorithm::{Charged, Mode};
use crate::band::Band;
use crate::keyed::{Denied, Permit, bands_of, conclude};
use crate::limiter::{FallbackDecision, Limiter};
use crate::observer::Observer;
use crate::quota::Quota;
use crate::reservation::Reservation;
use crate::rules::{OnError, RuleSets};
use crate::store::{Checks, Group, Store, StoreError, Verdicts, WaitPermit};
use crate::task;

/// Limits each key by itself, in a store that several processes share: a
/// [`KeyedLimiter`](crate::KeyedLimiter) for Redis.
///
/// ```
/// use fluxgate_core::{MemoryStore, Quota, SharedKeyedLimiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let store = MemoryStore::default();
/// // let store = RedisStore::connect("redis://127.0.0.1").await?;
/// let logins = SharedKeyedLimiter::new("logins", Quota::per_minute(1), store);
/// assert!(logins.check("ann").await.is_ok());
/// assert!(logins.check("ann").await.is_err());
/// assert!(logins.check("bob").await.is_ok());
/// # }
/// ```
///
/// A key is a text or bytes, because other processes must find it under the same name: for
/// several parts, join them with a separator that none of them contains. Limiters with the
/// same name on the same store share their counters, also if their quotas differ while a new
/// release rolls out. Each quota may have its own algorithm. Clones share everything.
#[derive(Debug)]
pub struct SharedKeyedLimiter<S> {
    limiter: Limiter<S>,
    name: Arc<str>,
    bands: Arc<[Band]>,
    on_error: OnError,
}

impl<S> Clone for SharedKeyedLimiter<S> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            name: Arc::clone(&self.name),
            bands: Arc::clone(&self.bands),
            on_error: self.on_error,
        }
    }
}

impl<S: Store + 'static> SharedKeyedLimiter<S> {
    /// Creates a limiter with one quota, or several that apply together.
    pub fn new(
        name: impl Into<Arc<str>>,
        quotas: impl IntoIterator<Item = Quota>,
        store: S,
    ) -> Self {
        Self {
            limiter: Limiter::new(RuleSets::default(), store),
            name: name.into(),
            bands: bands_of(quotas).collect(),
            on_error: OnError::default(),
        }
    }

    /// Sets what happens if the store fails; [`OnError::Local`] by default: this process
    /// limits by itself until the store is back. With the feature `tracing`, an outage is logged
    /// once, at the level `WARN`. A call that [`OnError::Deny`] denies has
    /// [failed closed](Denied::failed_closed).
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Adds an observer, which receives the failures of the store. Calls without rules are not
    /// decisions, so it receives none.
    ///
    /// ```
    /// use fluxgate_core::{MemoryStore, Observer, OnError, Quota, SharedKeyedLimiter, StoreError};
    ///
    /// #[derive(Debug)]
    /// struct Alarm;
    ///
    /// impl Observer for Alarm {
    ///     fn store_failed(&self, error: &StoreError, _: Option<OnError>) {
    ///         eprintln!("{error}");
    ///     }
    /// }
    ///
    /// let store = MemoryStore::default();
    /// let logins = SharedKeyedLimiter::new("logins", Quota::per_minute(5), store).observer(Alarm);
    /// ```
    ///
    /// # Panics
    /// If the limiter has been cloned.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.limiter = self.limiter.with_observer(observer);
        self
    }

    /// Takes a unit, if there is one.
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Result<Permit, Denied> {
        self.check_n(key, 1).await
    }

    /// Takes `units` together, if there are as many. No units are always there: 0 succeeds.
    pub async fn check_n(&self, key: impl AsRef<[u8]>, units: u32) -> Result<Permit, Denied> {
        self.decide(key.as_ref(), units, Mode::Take).await
    }

    /// Returns what [`SharedKeyedLimiter::check`] would return, and takes nothing.
    pub async fn peek(&self, key: impl AsRef<[u8]>) -> Result<Permit, Denied> {
        self.peek_n(key, 1).await
    }

    /// Returns what [`SharedKeyedLimiter::check_n`] would return, and takes nothing.
    pub async fn peek_n(&self, key: impl AsRef<[u8]>, units: u32) -> Result<Permit, Denied> {
        self.decide(key.as_ref(), units, Mode::Peek).await
    }

    /// Returns units to a key, up to its full quota. Returns how many are left then.
    pub async fn refund(&self, key: impl AsRef<[u8]>, units: u32) -> Result<u32, StoreError> {
        let key = self.key(key.as_ref());
        let store = self.limiter.store();
        let verdicts = store
            .refund(key.as_subject(), &self.bands, units.into())
            .await?;
        let left = verdicts.iter().map(|verdict| verdict.remaining);
        Ok(left.min().unwrap_or(u32::MAX))
    }

    /// Forgets a key: its quota is full again. Returns whether it was known.
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        let key = self.key(key.as_ref());
        let reset = self.limiter.store().reset(key.as_subject(), &self.bands);
        Ok(reset.await? > 0)
    }

    /// Takes a unit now, or reserves one that returns within `max_wait`. Reservations of a
    /// key are served in their order, over all processes.
    ///
    /// Only buckets can be reserved. A window or log that has no units left denies.
    pub async fn reserve(
        &self,
        key: impl AsRef<[u8]>,
        max_wait: Duration,
    ) -> Result<Reservation<Permit>, Denied> {
        self.reserve_n(key, 1, max_wait).await
    }

    /// Takes `units` together now, or reserves as many that return within `max_wait`.
    pub async fn reserve_n(
        &self,
        key: impl AsRef<[u8]>,
        units: u32,
        max_wait: Duration,
    ) -> Result<Reservation<Permit>, Denied> {
        let key = self.key(key.as_ref());
        let bands: Box<[Band]> = self
            .bands
            .iter()
            .map(|band| band.with_limit(band.limit().reserving(max_wait)))
            .collect();
        let decided = self.verdicts(&key, &bands, units, Mode::Take).await;
        let (verdicts, by_fallback) = match decided {
            Ok(verdicts) => (verdicts, false),
            Err(FallbackDecision::Local(verdicts)) => (verdicts, true),
            failed => {
                let permit = permit(failed)?;
                let place = WaitPermit::unbounded();
                return Ok(Reservation::new(permit, Duration::ZERO, place, || {}));
            }
        };
        let delay = verdicts.iter().map(|verdict| verdict.delay).max();
        let charged: Box<[Charged]> = verdicts.iter().map(Charged::by).collect();
        let permit = conclude(&verdicts)?;
        let limiter = self.limiter.clone();
        let cancel = move || {
            let at_once = by_fallback || limiter.store().answers_at_once();
            let cancel = async move {
                let (subject, units) = (key.as_subject(), units.into());
                // If it fails, the units stay taken, and return in time.
                let _ = match limiter.fallback().filter(|_| by_fallback) {
                    Some(fallback) => fallback.cancel(subject, &bands, units, &charged).await,
                    None => {
                        limiter
                            .store()
                            .cancel(subject, &bands, units, &charged)
                            .await
                    }
                };
            };
            task::run(cancel, at_once);
        };
        let delay = delay.unwrap_or_default().as_duration();
        let place = WaitPermit::unbounded();
        Ok(Reservation::new(permit, delay, place, cancel))
    }

    /// Waits until a unit is available, and takes it. Callers of one key are served in
    /// their order, over all processes, if the quotas are buckets.
    #[cfg(feature = "tokio")]
    pub async fn until_ready(&self, key: impl AsRef<[u8]>) -> Permit {
        let permit = self.until_n_ready(key, 1).await;
        permit.expect("every quota has a unit")
    }

    /// Waits until `units` are available together, and takes them. Fails if they never are,
    /// because a quota has fewer.
    #[cfg(feature = "tokio")]
    pub async fn until_n_ready(&self, key: impl AsRef<[u8]>, units: u32) -> Result<Permit, Denied> {
        loop {
            match self.reserve_n(&key, units, Duration::MAX).await {
                Ok(reservation) => return Ok(reservation.wait().await),
                Err(denied) => denied.sleep().await?,
            }
        }
    }

    fn key(&self, key: &[u8]) -> AdHocKey {
        AdHocKey::new(&self.name, &[key])
    }

    async fn decide(&self, key: &[u8], units: u32, mode: Mode) -> Result<Permit, Denied> {
        let key = self.key(key);
        permit(self.verdicts(&key, &self.bands, units, mode).await)
    }

    async fn verdicts(
        &self,
        key: &AdHocKey,
        bands: &[Band],
        units: u32,
        mode: Mode,
    ) -> Result<Verdicts, FallbackDecision> {
        let mut checks = Checks::new(mode);
        checks.push(key.as_subject(), bands, units.into(), Group::ENFORCED);
        self.limiter
            .decide_or_fall_back(&checks, self.on_error)
            .await
    }
}

fn permit(verdicts: Result<Verdicts, FallbackDecision>) -> Result<Permit, Denied> {
    match verdicts {
        Ok(verdicts) | Err(FallbackDecision::Local(verdicts)) => conclude(&verdicts),
        Err(FallbackDecision::Fixed(decision)) if decision.allowed() => Ok(Permit::failed_open()),
        Err(FallbackDecision::Fixed(decision)) => {
            Err(Denied::by_failed_store(decision.retry_after()))
        }
    }
}
