//! Stores that are shared, and stores whose type is chosen at run time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Checks, KeptReservation, LocalStore, Store, StoreError, Verdicts, WaitPermit};
use crate::algorithm::Charged;
use crate::band::Band;
use crate::hold::{HoldId, Settled, Settlement};
use crate::key::{IdentityPart, PartHash, Subject};
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

/// Calls a macro with the asynchronous methods of [`Store`], each with its arguments and what it
/// returns if the store answers. Borrowed arguments have the lifetime `$a`.
macro_rules! with_methods {
    ($macro:ident, $a:lifetime $(, $context:tt)*) => {
        $macro! { $a $(, $context)*;
            decide(checks: &$a Checks<'_>) -> Verdicts;
            decide_with_permit(checks: &$a Checks<'_>) -> (Verdicts, WaitPermit);
            begin_wait(longest: Duration) -> Option<WaitPermit>;
            refund(subject: Subject<$a>, bands: &$a [Band], units: u64) -> Verdicts;
            cancel(
                subject: Subject<$a>, bands: &$a [Band], units: u64, charged: &$a [Charged]
            ) -> ();
            keep_reservation(reservation: &$a KeptReservation<'_>) -> bool;
            cancel_reservation(id: HoldId) -> bool;
            settle(hold: HoldId, settlement: Settlement<$a>) -> Option<Settled>;
            renew(holds: &$a [(HoldId, Micros)]) -> Vec<bool>;
            reset(subject: Subject<$a>, bands: &$a [Band]) -> u64;
            on_lease(subject: Subject<$a>, bands: &$a [Band]) -> Vec<u64>;
            reset_rule(rule: Subject<$a>) -> u64;
        }
    };
}

/// Defines [`Store`] with boxed futures.
macro_rules! erase {
    ($a:lifetime; $($name:ident($($arg:ident: $type:ty),+) -> $output:ty;)+) => {
        trait ErasedStore: Send + Sync {
            fn time(&self) -> Timestamp;
            fn answers_at_once(&self) -> bool;
            fn hash_part(&self, part: &IdentityPart<'_>) -> Option<PartHash>;
            fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool;
            $(fn $name<$a>(&$a self, $($arg: $type),+) -> BoxFuture<$a, $output>;)+
        }

        impl<S: Store> ErasedStore for S {
            fn time(&self) -> Timestamp {
                Store::time(self)
            }

            fn answers_at_once(&self) -> bool {
                Store::answers_at_once(self)
            }

            fn hash_part(&self, part: &IdentityPart<'_>) -> Option<PartHash> {
                Store::hash_part(self, part)
            }

            fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
                Store::try_decide(self, checks, verdicts)
            }

            $(fn $name<$a>(&$a self, $($arg: $type),+) -> BoxFuture<$a, $output> {
                Box::pin(Store::$name(self, $($arg),+))
            })+
        }
    };
}

/// Implements [`Store`] by calls of the store inside.
macro_rules! forward {
    (
        $a:lifetime, [$($implementation:tt)+], [$store:ident => $inner:expr];
        $($name:ident($($arg:ident: $type:ty),+) -> $output:ty;)+
    ) => {
        $($implementation)+ {
            fn time(&self) -> Timestamp {
                let $store = self;
                $inner.time()
            }

            fn answers_at_once(&self) -> bool {
                let $store = self;
                $inner.answers_at_once()
            }

            fn hash_part(&self, part: &IdentityPart<'_>) -> Option<PartHash> {
                let $store = self;
                $inner.hash_part(part)
            }

            fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
                let $store = self;
                $inner.try_decide(checks, verdicts)
            }

            $(async fn $name(&self, $($arg: $type),+) -> Result<$output, StoreError> {
                let $store = self;
                $inner.$name($($arg),+).await
            })+
        }
    };
}

with_methods!(erase, 'a);
with_methods!(forward, '_, [impl Store for DynStore], [store => (*store.0)]);
with_methods!(forward, '_, [impl<S: Store> Store for Arc<S>], [store => (**store)]);

impl<S: LocalStore> LocalStore for Arc<S> {
    fn decide_now(&self, checks: &Checks<'_>) -> Verdicts {
        (**self).decide_now(checks)
    }
}
