//! The wall clock by the processor's cycle counter.

use std::cell::Cell;

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
        let time = Timestamp::of_system_clock();
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
