//! Stores that are shared, and stores whose type is chosen at run time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Checks, KeptReservation, LocalStore, Store, StoreError, Verdicts, WaitPermit};
use crate::algorithm::Charged;
use crate::band::Band;
use crate::hold::{HoldId, Settled, Settlement};
use crate::key::Subject;
use crate::time::{Micros, Timestamp};

/// A store whose type is chosen at run time. Clones share it.
///
/// ```
/// use fluxgate_core::{DynStore, Limiter, MemoryStore, RuleSets};
///
/// let store = match std::env::var("REDIS_URL") {
///     // Ok(url) => DynStore::new(RedisStore::connect(&url).await?),
///     # Ok(_) => DynStore::new(MemoryStore::default()),
///     Err(_) => DynStore::new(MemoryStore::default()),
/// };
/// let limiter = Limiter::new(RuleSets::default(), store);
/// ```
///
/// What can be decided at once costs one dynamic call; a future is boxed.
#[derive(Clone)]
pub struct DynStore(Arc<dyn ErasedStore>);

impl DynStore {
    /// Erases the type of a store.
    pub fn new(store: impl Store + 'static) -> Self {
        Self(Arc::new(store))
    }
}

impl<S: Store + 'static> From<Arc<S>> for DynStore {
    fn from(store: Arc<S>) -> Self {
        Self(store)
    }
}

impl fmt::Debug for DynStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynStore").finish_non_exhaustive()
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// [`Store`] with boxed futures.
trait ErasedStore: Send + Sync {
    fn decide<'a>(&'a self, checks: &'a Checks<'_>) -> BoxFuture<'a, Verdicts>;
    fn time(&self) -> Timestamp;
    fn answers_at_once(&self) -> bool;
    fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool;
    fn decide_with_permit<'a>(
        &'a self,
        checks: &'a Checks<'_>,
    ) -> BoxFuture<'a, (Verdicts, WaitPermit)>;
    fn begin_wait(&self, longest: Duration) -> BoxFuture<'_, Option<WaitPermit>>;
    fn refund<'a>(
        &'a self,
        subject: Subject<'a>,
        bands: &'a [Band],
        units: u64,
    ) -> BoxFuture<'a, Verdicts>;
    fn cancel<'a>(
        &'a self,
        subject: Subject<'a>,
        bands: &'a [Band],
        units: u64,
        charged: &'a [Charged],
    ) -> BoxFuture<'a, ()>;
    fn keep_reservation<'a>(&'a self, reservation: &'a KeptReservation<'_>) -> BoxFuture<'a, bool>;
    fn cancel_reservation(&self, id: HoldId) -> BoxFuture<'_, bool>;
    fn settle<'a>(
        &'a self,
        hold: HoldId,
        settlement: Settlement<'a>,
    ) -> BoxFuture<'a, Option<Settled>>;
    fn renew<'a>(&'a self, holds: &'a [(HoldId, Micros)]) -> BoxFuture<'a, Vec<bool>>;
    fn reset<'a>(&'a self, subject: Subject<'a>, bands: &'a [Band]) -> BoxFuture<'a, u64>;
    fn on_lease<'a>(&'a self, subject: Subject<'a>, bands: &'a [Band]) -> BoxFuture<'a, Vec<u64>>;
    fn reset_rule<'a>(&'a self, rule: Subject<'a>) -> BoxFuture<'a, u64>;
}

impl<S: Store> ErasedStore for S {
    fn decide<'a>(&'a self, checks: &'a Checks<'_>) -> BoxFuture<'a, Verdicts> {
        Box::pin(Store::decide(self, checks))
    }

    fn time(&self) -> Timestamp {
        Store::time(self)
    }

    fn answers_at_once(&self) -> bool {
        Store::answers_at_once(self)
    }

    fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
        Store::try_decide(self, checks, verdicts)
    }

    fn decide_with_permit<'a>(
        &'a self,
        checks: &'a Checks<'_>,
    ) -> BoxFuture<'a, (Verdicts, WaitPermit)> {
        Box::pin(Store::decide_with_permit(self, checks))
    }

    fn begin_wait(&self, longest: Duration) -> BoxFuture<'_, Option<WaitPermit>> {
        Box::pin(Store::begin_wait(self, longest))
    }

    fn refund<'a>(
        &'a self,
        subject: Subject<'a>,
        bands: &'a [Band],
        units: u64,
    ) -> BoxFuture<'a, Verdicts> {
        Box::pin(Store::refund(self, subject, bands, units))
    }

    fn cancel<'a>(
        &'a self,
        subject: Subject<'a>,
        bands: &'a [Band],
        units: u64,
        charged: &'a [Charged],
    ) -> BoxFuture<'a, ()> {
        Box::pin(Store::cancel(self, subject, bands, units, charged))
    }

    fn keep_reservation<'a>(&'a self, reservation: &'a KeptReservation<'_>) -> BoxFuture<'a, bool> {
        Box::pin(Store::keep_reservation(self, reservation))
    }

    fn cancel_reservation(&self, id: HoldId) -> BoxFuture<'_, bool> {
        Box::pin(Store::cancel_reservation(self, id))
    }

    fn settle<'a>(
        &'a self,
        hold: HoldId,
        settlement: Settlement<'a>,
    ) -> BoxFuture<'a, Option<Settled>> {
        Box::pin(Store::settle(self, hold, settlement))
    }

    fn renew<'a>(&'a self, holds: &'a [(HoldId, Micros)]) -> BoxFuture<'a, Vec<bool>> {
        Box::pin(Store::renew(self, holds))
    }

    fn reset<'a>(&'a self, subject: Subject<'a>, bands: &'a [Band]) -> BoxFuture<'a, u64> {
        Box::pin(Store::reset(self, subject, bands))
    }

    fn on_lease<'a>(&'a self, subject: Subject<'a>, bands: &'a [Band]) -> BoxFuture<'a, Vec<u64>> {
        Box::pin(Store::on_lease(self, subject, bands))
    }

    fn reset_rule<'a>(&'a self, rule: Subject<'a>) -> BoxFuture<'a, u64> {
        Box::pin(Store::reset_rule(self, rule))
    }
}

/// Implements [`Store`] by calls of the store inside.
macro_rules! forward {
    ($($generics:tt)*) => {
        $($generics)* {
            async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
                self.inner().decide(checks).await
            }

            fn time(&self) -> Timestamp {
                self.inner().time()
            }

            fn answers_at_once(&self) -> bool {
                self.inner().answers_at_once()
            }

            fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
                self.inner().try_decide(checks, verdicts)
            }

            async fn decide_with_permit(
                &self,
                checks: &Checks<'_>,
            ) -> Result<(Verdicts, WaitPermit), StoreError> {
                self.inner().decide_with_permit(checks).await
            }

            async fn begin_wait(
                &self,
                longest: Duration,
            ) -> Result<Option<WaitPermit>, StoreError> {
                self.inner().begin_wait(longest).await
            }

            async fn refund(
                &self,
                subject: Subject<'_>,
                bands: &[Band],
                units: u64,
            ) -> Result<Verdicts, StoreError> {
                self.inner().refund(subject, bands, units).await
            }

            async fn cancel(
                &self,
                subject: Subject<'_>,
                bands: &[Band],
                units: u64,
                charged: &[Charged],
            ) -> Result<(), StoreError> {
                self.inner().cancel(subject, bands, units, charged).await
            }

            async fn keep_reservation(
                &self,
                reservation: &KeptReservation<'_>,
            ) -> Result<bool, StoreError> {
                self.inner().keep_reservation(reservation).await
            }

            async fn cancel_reservation(&self, id: HoldId) -> Result<bool, StoreError> {
                self.inner().cancel_reservation(id).await
            }

            async fn settle(
                &self,
                hold: HoldId,
                settlement: Settlement<'_>,
            ) -> Result<Option<Settled>, StoreError> {
                self.inner().settle(hold, settlement).await
            }

            async fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
                self.inner().renew(holds).await
            }

            async fn reset(
                &self,
                subject: Subject<'_>,
                bands: &[Band],
            ) -> Result<u64, StoreError> {
                self.inner().reset(subject, bands).await
            }

            async fn on_lease(
                &self,
                subject: Subject<'_>,
                bands: &[Band],
            ) -> Result<Vec<u64>, StoreError> {
                self.inner().on_lease(subject, bands).await
            }

            async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
                self.inner().reset_rule(rule).await
            }
        }
    };
}

forward!(impl Store for DynStore);
forward!(impl<S: Store> Store for Arc<S>);

impl<S: LocalStore> LocalStore for Arc<S> {
    fn decide_now(&self, checks: &Checks<'_>) -> Verdicts {
        (**self).decide_now(checks)
    }
}

/// The store inside another.
trait Inner {
    type Inner: ?Sized;

    fn inner(&self) -> &Self::Inner;
}

impl Inner for DynStore {
    type Inner = dyn ErasedStore;

    fn inner(&self) -> &(dyn ErasedStore + 'static) {
        &*self.0
    }
}

impl<S> Inner for Arc<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        self
    }
}
