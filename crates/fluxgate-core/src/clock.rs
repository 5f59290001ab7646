//! Clocks for the embedded store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::time::Timestamp;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// The wall clock.
///
/// With the feature `fast-clock`, each thread reads the operating system's clock at most
/// every 20 ms and adds the cycles that the processor has counted since. That takes half as
/// long, and a step or drift of the system clock still shows at the next reading.
#[derive(Clone, Debug, Default)]
pub struct SystemClock {
    #[cfg(feature = "fast-clock")]
    cycles: cycles::Cycles,
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[cfg(feature = "fast-clock")]
        let micros = self.cycles.wall_micros();
        #[cfg(not(feature = "fast-clock"))]
        let micros = wall_micros();
        Timestamp::saturating_from_micros(micros)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
fn wall_micros() -> u64 {
    Timestamp::from(SystemTime::now()).micros()
}

/// The wall clock by the processor's cycle counter.
#[cfg(feature = "fast-clock")]
mod cycles {
    use std::cell::Cell;

    use super::wall_micros;

    /// How long the cycle counter is trusted before the system clock is read again.
    const ANCHOR_NANOS: u64 = 20_000_000;

    #[derive(Clone, Copy)]
    struct Anchor {
        ticks: u64,
        micros: u64,
    }

    thread_local! {
        static ANCHOR: Cell<Option<Anchor>> = const { Cell::new(None) };
    }

    #[derive(Clone, Debug)]
    pub(super) struct Cycles(quanta::Clock);

    impl Default for Cycles {
        fn default() -> Self {
            Self(quanta::Clock::new())
        }
    }

    impl Cycles {
        pub(super) fn wall_micros(&self) -> u64 {
            let ticks = self.0.raw();
            if let Some(anchor) = ANCHOR.get() {
                let nanos = self.0.delta_as_nanos(anchor.ticks, ticks);
                if nanos < ANCHOR_NANOS {
                    return anchor.micros + nanos / 1000;
                }
            }
            let micros = wall_micros();
            ANCHOR.set(Some(Anchor { ticks, micros }));
            micros
        }
    }
}

/// A clock that stands still until it is set, for tests and simulations. Clones
/// share their time.
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
