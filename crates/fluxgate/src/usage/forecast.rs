//! When an identity runs out, if it goes on as within the last hour.

use fluxgate_core::store::Micros;
use fluxgate_core::{Algorithm, Limit};

/// An hour, in microseconds.
const HOUR: u128 = 3_600_000_000;

/// Returns when the `remaining` units of a limit are used up, if `per_hour` units are used each hour;
/// `None` if that is not within its window, or never. What returns in the meantime counts: the refill
/// of a bucket, the end of a window after `reset_after`, and units that leave a sliding window at the
/// rate at which they came.
pub(crate) fn exhausted_in(
    limit: &Limit,
    remaining: u64,
    reset_after: Micros,
    per_hour: u64,
) -> Option<Micros> {
    if remaining == 0 {
        return Some(Micros::ZERO);
    }
    let (left, use_per_hour) = (u128::from(remaining), u128::from(per_hour));
    let window = u128::from(limit.window().get());
    // A number of units each `span`, in the unit of `gain / (HOUR * span)`.
    let (gain, span, longest) = match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let rate = limit.rate();
            let fill = u128::from(rate.time_of(limit.capacity()).ceil());
            (
                u128::from(rate.refill()),
                u128::from(rate.period().get()),
                fill,
            )
        }
        Algorithm::FixedWindow => {
            let rest = match reset_after {
                Micros::ZERO => window,
                rest => rest.get().into(),
            };
            (0, 1, rest)
        }
        Algorithm::SlidingWindow | Algorithm::SlidingLog => {
            let used = limit.capacity().saturating_sub(remaining);
            (used.into(), window, window)
        }
        // Slots are taken and released, not used up.
        Algorithm::Concurrency => return None,
    };
    // No product reaches 2^128.
    let net = (use_per_hour * span).checked_sub(gain * HOUR)?;
    let exhausted = (left * HOUR).checked_mul(span)?.checked_div(net)?;
    let exhausted = u64::try_from(exhausted)
        .ok()
        .filter(|_| exhausted <= longest)?;
    Some(Micros::new(exhausted))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: u64 = 60_000_000;

    fn limit(algorithm: Algorithm, capacity: u64, seconds: u64) -> Limit {
        let limit = Limit::builder(algorithm, capacity, Duration::from_secs(seconds));
        limit.build().unwrap()
    }

    fn minutes(limit: &Limit, remaining: u64, reset: u64, per_hour: u64) -> Option<u64> {
        let reset = Micros::new(reset * MINUTE);
        let exhausted = exhausted_in(limit, remaining, reset, per_hour);
        exhausted.map(|it| it.get() / MINUTE)
    }

    #[test]
    fn a_bucket_runs_out_only_if_more_is_used_than_refilled() {
        // 1,000 units, of which 10 return each minute.
        let bucket = limit(Algorithm::TokenBucket, 1000, 6000);
        // 20 are used each minute.
        assert_eq!(minutes(&bucket, 500, 50, 1200), Some(50));
        assert_eq!(minutes(&bucket, 500, 50, 600), None);
        assert_eq!(minutes(&bucket, 500, 50, 0), None);
        // That would take longer than to fill it.
        assert_eq!(minutes(&bucket, 1000, 0, 601), None);
        assert_eq!(minutes(&bucket, 0, 100, 0), Some(0));
    }

    #[test]
    fn a_window_runs_out_before_its_end_or_not_at_all() {
        let day = limit(Algorithm::FixedWindow, 1000, 86_400);
        assert_eq!(minutes(&day, 120, 600, 60), Some(120));
        assert_eq!(minutes(&day, 120, 119, 60), None);
        assert_eq!(minutes(&day, 120, 120, 60), Some(120));
        assert_eq!(minutes(&day, 1000, 0, 60), Some(1000));
    }

    #[test]
    fn units_leave_a_sliding_window_as_they_came() {
        for algorithm in [Algorithm::SlidingWindow, Algorithm::SlidingLog] {
            let hour = limit(algorithm, 1000, 3600);
            // 400 of the last hour leave in the next, and 1,000 come.
            assert_eq!(minutes(&hour, 600, 60, 1000), Some(60));
            assert_eq!(minutes(&hour, 300, 60, 1000), Some(60));
            assert_eq!(minutes(&hour, 600, 60, 999), None);
            assert_eq!(minutes(&hour, 500, 60, 500), None);
        }
    }

    #[test]
    fn slots_are_not_used_up_and_large_numbers_do_not_overflow() {
        let slots = Limit::concurrency(5).build().unwrap();
        assert_eq!(minutes(&slots, 3, 1, 1_000_000), None);
        assert_eq!(minutes(&slots, 0, 1, 0), Some(0));
        let year = limit(Algorithm::TokenBucket, 1_000_000_000, 366 * 86_400);
        assert_eq!(minutes(&year, 1_000_000_000, 0, u64::MAX), Some(0));
    }
}
