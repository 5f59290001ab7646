//! Bands that another band of the same rule makes pointless.
//!
//! All bands of a rule are charged with the same units at the same times, and refunded
//! together. So a band is pointless if, after the same charges and refunds, it allows every
//! request that another one allows. This ignores two temporary cases: a clock that goes back,
//! and state from before a rule changed.

use crate::band::Band;
use crate::calendar::{Calendar, CalendarUnit};
use crate::limit::{Algorithm, Limit};
use crate::rules::fault::{FaultCollector, Step};

/// Warns of the bands without effect. Each band is compared with the first `max_others`.
pub(super) fn warn(bands: &[Band], max_others: usize, warnings: &mut FaultCollector<'_>) {
    for (index, band) in bands.iter().enumerate() {
        let limit = band.limit();
        let mut others = bands.iter().enumerate().take(max_others);
        let stricter = others.find(|(other, stricter)| {
            let is_equal = || makes_pointless(limit, stricter.limit());
            // If two bands are equal, the later one is reported.
            *other != index
                && makes_pointless(stricter.limit(), limit)
                && (*other < index || !is_equal())
        });
        if let Some((_, stricter)) = stricter {
            let (id, other) = (band.id(), stricter.id());
            let message = format!(
                "band `{id}` has no effect: it allows everything that band `{other}` allows"
            );
            warnings.add_at([Step::Field("bands"), Step::Index(index)], message);
        }
    }
}

/// Returns whether `b` allows everything that `a` allows. `false` if that is not certain.
fn makes_pointless(a: &Limit, b: &Limit) -> bool {
    if a.algorithm() != b.algorithm() {
        return false;
    }
    let times = |windows: u64| b.capacity() >= windows.saturating_mul(a.capacity());
    match a.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => bucket(a, b),
        // An interval of `a`'s length holds at most `a`'s capacity: when its last unit was
        // admitted, the others were in the window that ended there. That many of them cover
        // `b`'s window. A refund removes the newest units of both logs: what `a` loses,
        // `b` loses, too.
        Algorithm::SlidingLog => times(b.window().get().div_ceil(a.window().get())),
        Algorithm::FixedWindow => windows_within(a, b).is_some_and(times),
        // With the same windows the counts are the same. With others they are not after a
        // refund, which reduces the current count only.
        Algorithm::Concurrency => times(1),
        Algorithm::SlidingWindow => a.window() == b.window() && times(1),
    }
}

/// The units that a bucket lacks grow by the same charges, and shrink by the same refunds and
/// by its rate, but not below 0. So if `b` refills no slower, it never lacks more than `a`,
/// and if it is no smaller, it has no less left. A reservation or a queue in front of `b` is
/// no longer either: fewer units, at a higher rate.
fn bucket(a: &Limit, b: &Limit) -> bool {
    let product = |units: &Limit, time: &Limit| {
        u128::from(units.rate().refill()) * u128::from(time.rate().period().get())
    };
    let refills_no_slower = product(b, a) >= product(a, b);
    refills_no_slower && b.capacity() >= a.capacity()
}

/// Returns the maximum number of `a`'s windows that one of `b`'s windows overlaps, if it is
/// known. Each holds at most `a`'s capacity, so `b`'s holds at most that many times as much. A refund that
/// `a` cannot take in full, because its window has just begun, takes more from `b`.
fn windows_within(a: &Limit, b: &Limit) -> Option<u64> {
    match (a.windows(), b.windows()) {
        (None, None) => {
            let (a, b) = (a.window().get(), b.window().get());
            // Both are aligned to the epoch, so `b`'s window begins a multiple of their common
            // divisor after `a`'s.
            let latest_start = a - gcd(a, b);
            Some((latest_start + b).div_ceil(a))
        }
        (Some(a), Some(b)) => calendar_windows_within(a, b),
        _ => None,
    }
}

/// In one time zone, each window begins with a day, or within it. A day is counted once, even
/// if its date is repeated.
fn calendar_windows_within(a: &Calendar, b: &Calendar) -> Option<u64> {
    use CalendarUnit::{Day, Hour, Month, Week, Year};
    if a.time_zone() != b.time_zone() {
        return None;
    }
    match (a.unit(), b.unit()) {
        (a, b) if a == b => Some(1),
        (_, Hour) | (Week | Month | Year, Day) | (Year, Month) => Some(1),
        (Day, Week) => Some(7),
        (Day, Month) => Some(31),
        (Day, Year) => Some(366),
        (Month, Year) => Some(12),
        // How many hours a day has depends on the time zone; weeks and months overlap.
        _ => None,
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
