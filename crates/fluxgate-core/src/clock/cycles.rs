//! The wall clock, interpolated with the processor's cycle counter.

use std::cell::Cell;

use crate::time::Timestamp;

/// How long the cycle counter is trusted before the system clock is read again.
const ANCHOR_LIFETIME_NANOS: u64 = 20_000_000;
/// So many ticks (minutes) that rounding their duration to nanoseconds does not affect the length
/// of one tick.
const CALIBRATION_TICKS: u64 = 1 << 40;
/// The fraction bits of `Anchor::micros_per_tick`. An anchor is valid for 20,000 microseconds,
/// which fit in 15 bits, so the product in `now` fits in 64.
const FRACTION_BITS: u32 = 48;

/// The last reading of the system clock.
#[derive(Clone, Copy)]
struct Anchor {
    ticks: u64,
    time: Timestamp,
    /// The number of ticks after which the system clock is read again.
    valid_ticks: u64,
    /// Microseconds per tick, with [`FRACTION_BITS`].
    micros_per_tick: u64,
}

impl Anchor {
    const NONE: Self = Self {
        ticks: 0,
        time: Timestamp::saturating_from_micros(0),
        valid_ticks: 0,
        micros_per_tick: 0,
    };
}

thread_local! {
    static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor::NONE) };
}

#[derive(Clone, Debug)]
pub(super) struct CycleClock(quanta::Clock);

impl Default for CycleClock {
    fn default() -> Self {
        Self(quanta::Clock::new())
    }
}

impl CycleClock {
    #[inline]
    pub(super) fn now(&self) -> Timestamp {
        let ticks = self.0.raw();
        let anchor = ANCHOR.get();
        // Wraps to a large number if the thread has moved to a core whose counter is behind.
        let since = ticks.wrapping_sub(anchor.ticks);
        if since < anchor.valid_ticks {
            return anchor
                .time
                .plus((since * anchor.micros_per_tick) >> FRACTION_BITS);
        }
        self.renew_anchor(ticks)
    }

    /// Reads the system clock and makes the reading the anchor of this thread.
    #[cold]
    fn renew_anchor(&self, ticks: u64) -> Timestamp {
        let time = Timestamp::of_system_clock();
        let nanos = self.0.delta_as_nanos(0, CALIBRATION_TICKS).max(1);
        let scaled = |number: u64, by: u64, divisor: u64| {
            let scaled = u128::from(number) * u128::from(by) / u128::from(divisor);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        let is_near_max = time.micros() + ANCHOR_LIFETIME_NANOS / 1000 > Timestamp::MAX.micros();
        let valid = scaled(ANCHOR_LIFETIME_NANOS, CALIBRATION_TICKS, nanos);
        ANCHOR.set(Anchor {
            ticks,
            time,
            valid_ticks: if is_near_max { 0 } else { valid },
            micros_per_tick: scaled(nanos, (1 << FRACTION_BITS) / CALIBRATION_TICKS, 1000),
        });
        time
    }
}
