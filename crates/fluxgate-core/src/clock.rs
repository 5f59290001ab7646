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
    #[inline]
    fn now(&self) -> Timestamp {
        #[cfg(feature = "fast-clock")]
        return self.cycles.now();
        #[cfg(not(feature = "fast-clock"))]
        return system_time();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the wall clock"
)]
fn system_time() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// The wall clock by the processor's cycle counter.
#[cfg(feature = "fast-clock")]
mod cycles {
    use std::cell::Cell;

    use super::system_time;
    use crate::time::Timestamp;

    /// How long the cycle counter is trusted before the system clock is read again.
    const ANCHOR_NANOS: u64 = 20_000_000;
    /// Enough ticks to measure one exactly: minutes, at the least.
    const MANY_TICKS: u64 = 1 << 40;
    /// The bits of a fraction of a microsecond. The microseconds of an anchor have 15 bits,
    /// so a product has fewer than 64.
    const FRACTION_BITS: u32 = 48;

    /// The last reading of the system clock.
    #[derive(Clone, Copy)]
    struct Anchor {
        ticks: u64,
        time: Timestamp,
        /// The number of ticks after which the system clock is read again.
        valid: u64,
        /// Microseconds per tick, with [`FRACTION_BITS`].
        tick: u64,
    }

    impl Anchor {
        const NONE: Self = Self {
            ticks: 0,
            time: Timestamp::saturating_from_micros(0),
            valid: 0,
            tick: 0,
        };
    }

    thread_local! {
        static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor::NONE) };
    }

    #[derive(Clone, Debug)]
    pub(super) struct Cycles(quanta::Clock);

    impl Default for Cycles {
        fn default() -> Self {
            Self(quanta::Clock::new())
        }
    }

    impl Cycles {
        #[inline]
        pub(super) fn now(&self) -> Timestamp {
            let ticks = self.0.raw();
            let anchor = ANCHOR.get();
            // Wraps to a large number if another core's counter is behind.
            let since = ticks.wrapping_sub(anchor.ticks);
            if since < anchor.valid {
                return anchor.time.plus((since * anchor.tick) >> FRACTION_BITS);
            }
            self.system_time_at(ticks)
        }

        /// Reads the system clock.
        #[cold]
        fn system_time_at(&self, ticks: u64) -> Timestamp {
            let time = system_time();
            let nanos = self.0.delta_as_nanos(0, MANY_TICKS).max(1);
            let scaled = |number: u64, by: u64, divisor: u64| {
                let scaled = u128::from(number) * u128::from(by) / u128::from(divisor);
                u64::try_from(scaled).unwrap_or(u64::MAX)
            };
            let is_last = time.micros() + ANCHOR_NANOS > Timestamp::MAX.micros();
            let valid = scaled(ANCHOR_NANOS, MANY_TICKS, nanos);
            ANCHOR.set(Anchor {
                ticks,
                time,
                valid: if is_last { 0 } else { valid },
                tick: scaled(nanos, (1 << FRACTION_BITS) / MANY_TICKS, 1000),
            });
            time
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
