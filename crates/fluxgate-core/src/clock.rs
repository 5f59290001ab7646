//! Clocks for the embedded store.

#[cfg(feature = "fast-clock")]
mod cycles;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[cfg(feature = "simulation")]
use crate::simulation;
use crate::time::Timestamp;

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// The wall clock.
///
/// With the feature `fast-clock`, each thread reads the operating system's clock at most
/// every 20 ms and adds the cycles that the processor has counted since. This halves the time of a
/// reading. A step or drift of the system clock takes effect at the thread's next reading of it.
#[derive(Clone, Debug, Default)]
pub struct SystemClock {
    #[cfg(feature = "fast-clock")]
    cycles: cycles::CycleClock,
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = simulation::current() {
            return Timestamp::saturating_from_micros(simulated.wall);
        }
        #[cfg(feature = "fast-clock")]
        return self.cycles.now();
        #[cfg(not(feature = "fast-clock"))]
        return Timestamp::of_system_clock();
    }
}

/// A clock that stands still until it is set, for tests and simulations. Clones
/// share their time.
///
/// ```
/// use std::time::Duration;
///
/// use fluxgate_core::{DirectLimiter, ManualClock, Quota};
///
/// let clock = ManualClock::default();
/// let limiter = DirectLimiter::with_clock(Quota::per_second(1), clock.clone());
/// assert!(limiter.check().is_ok());
/// assert!(limiter.check().is_err());
/// clock.advance(Duration::from_secs(1));
/// assert!(limiter.check().is_ok());
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock that shows `now`.
    pub fn new(now: impl Into<Timestamp>) -> Self {
        let now = now.into();
        Self(Arc::new(AtomicU64::new(now.micros())))
    }

    /// Moves the time forwards.
    pub fn advance(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let before = self.now().micros();
        self.set(Timestamp::saturating_from_micros(
            before.saturating_add(micros),
        ));
    }

    /// Sets the time, forwards or backwards.
    pub fn set(&self, now: impl Into<Timestamp>) {
        self.0.store(now.into().micros(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::saturating_from_micros(self.0.load(Ordering::Relaxed))
    }
}
