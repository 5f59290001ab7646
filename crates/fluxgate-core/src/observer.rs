//! Observers of a limiter.

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

use std::time::{Duration, Instant};

use crate::decision::{Decision, WaitRefusal};
use crate::hold::{HoldId, Settled};
use crate::rules::OnError;
use crate::store::StoreError;
#[cfg(feature = "metrics")]
pub use metrics::MetricsObserver;
#[cfg(feature = "tracing")]
pub use tracing::TracingObserver;

/// Receives the decisions and the failures of a limiter. It is called while the request
/// waits, so it must not block.
///
/// ```
/// use std::time::Duration;
///
/// use fluxgate_core::{Decision, Limiter, MemoryStore, Observer, OnError, RuleSets, StoreError};
///
/// #[derive(Debug)]
/// struct Log;
///
/// impl Observer for Log {
///     fn decided(&self, decision: &Decision, took: Duration) {
///         if let Some(violation) = decision.violated().next() {
///             println!("{}: {violation} after {took:?}", decision.outcome());
///         }
///     }
///
///     fn store_failed(&self, error: &StoreError, _: Option<OnError>) {
///         println!("{error}");
///     }
/// }
///
/// let limiter = Limiter::builder(RuleSets::default(), MemoryStore::default())
///     .observer(Log)
///     .build();
/// ```
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// Called for every decision except peeks, with how long it took. A request that waits
    /// for a window is decided twice.
    fn decided(&self, decision: &Decision, took: Duration) {
        let _ = (decision, took);
    }

    /// Called when the store fails, with the `on_error` that decides the request. It is `None`
    /// for a peek, which lets nothing pass.
    fn store_failed(&self, error: &StoreError, on_error: Option<OnError>) {
        let _ = (error, on_error);
    }

    /// Called when a request starts to wait, in [`Limiter::until_ready`](crate::Limiter) or in
    /// a layer.
    fn wait_began(&self) {}

    /// Called when a request no longer waits, because it goes on or was abandoned.
    fn wait_ended(&self) {}

    /// Called when a request is denied that its rules let wait, with the reason why it does
    /// not.
    fn wait_refused(&self, decision: &Decision, refusal: WaitRefusal) {
        let _ = (decision, refusal);
    }

    /// Called when a hold is settled or released: with `None` if it had ended before, so that
    /// nothing has changed.
    fn hold_settled(&self, hold: HoldId, settled: Option<Settled>) {
        let _ = (hold, settled);
    }

    /// Called when a hold was renewed, with how long it lives from now on.
    fn hold_renewed(&self, hold: HoldId, span: Duration) {
        let _ = (hold, span);
    }

    /// Called when the hold of a running request has ended, because it could not be renewed in
    /// time.
    fn hold_expired(&self, hold: HoldId) {
        let _ = hold;
    }

    /// Called when rules that are watched have changed: with `Ok` once they are active, or
    /// with the reason why the old ones stay.
    fn rules_changed(&self, loaded: Result<(), &(dyn std::error::Error + 'static)>) {
        let _ = loaded;
    }

    /// Called when a request names a rule set that does not exist. Return `true` once you have
    /// reported the name, so that it is not passed again. The limiter remembers 1,000 names; if
    /// there are more, it forgets them and passes them again. With the feature `tracing` the
    /// limiter itself logs each name once, at the level `WARN`, and stops after 1,000 names.
    fn rule_set_missing(&self, name: &str) -> bool {
        let _ = name;
        true
    }
}

/// Measures how long a decision takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "observers report how long decisions take, and decisions do not depend on it"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
