//! Limits, converted to another algorithm or to another capacity.

use std::time::Duration;

use fluxgate_core::{Algorithm, Limit, LimitError};

/// The settings of a limit that another algorithm treats differently or ignores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// A refill rate of its own became the window in which the bucket fills.
    pub(super) refill: bool,
    /// `shape` is ignored.
    pub(super) shape: bool,
    /// `on_exceed: wait` denies, or is ignored.
    pub(super) wait: bool,
    /// Windows of the calendar became windows of their usual length.
    pub(super) calendar: bool,
}

/// Converts a limit to another algorithm. `waits` is true if its rule has
/// `on_exceed: wait`.
///
/// A leaky bucket is shaped wherever possible: it admits the same requests, and
/// shows when each of them is released.
pub(super) fn convert(
    algorithm: Algorithm,
    limit: &Limit,
    waits: bool,
) -> Result<(Limit, Differences), LimitError> {
    if limit.algorithm() == Algorithm::Concurrency {
        // Slots are not a rate.
        return Ok((*limit, Differences::default()));
    }
    let rate = limit.rate();
    let own_refill = has_own_refill(limit);
    let window = if own_refill && !algorithm.is_bucket() {
        // The same burst and the same rate in the long run.
        Duration::from_micros(rate.fill().ceil())
    } else {
        limit.window().as_duration()
    };
    let calendar = limit.windows();
    let kept = calendar.filter(|_| algorithm == Algorithm::FixedWindow);
    let mut converted = match kept {
        Some(calendar) => Limit::calendar(limit.capacity(), *calendar),
        None => Limit::builder(algorithm, limit.capacity(), window),
    };
    if own_refill && algorithm.is_bucket() {
        let period = rate.period().as_duration();
        converted = converted.refill(rate.refill()).period(period);
    }
    let max_wait = rate.max_wait().filter(|_| algorithm.is_bucket());
    if let Some(max_wait) = max_wait {
        converted = converted.max_wait(max_wait.as_duration());
    }
    let shape = algorithm == Algorithm::LeakyBucket && max_wait.is_none();
    let differences = Differences {
        refill: own_refill && !algorithm.is_bucket(),
        shape: rate.shape() && !shape,
        wait: waits && max_wait.is_none(),
        calendar: calendar.is_some() && kept.is_none(),
    };
    Ok((converted.shape(shape).build()?, differences))
}

/// Returns the limit with another capacity. Its window stays: a bucket with a refill of its
/// own refills in proportion, so that it fills in the same time. `None` if no limit can have
/// such a capacity.
pub(super) fn with_capacity(limit: &Limit, capacity: u64) -> Option<Limit> {
    let rate = limit.rate();
    let window = limit.window().as_duration();
    let mut other = match limit.windows() {
        Some(calendar) => Limit::calendar(capacity, *calendar),
        None => Limit::builder(limit.algorithm(), capacity, window),
    };
    if has_own_refill(limit) {
        let scaled = u128::from(rate.refill()) * u128::from(capacity);
        let refill = u64::try_from(scaled.div_ceil(limit.capacity().max(1).into())).ok()?;
        other = other.refill(refill).period(rate.period().as_duration());
    }
    if let Some(max_wait) = rate.max_wait() {
        other = other.max_wait(max_wait.as_duration());
    }
    other.shape(rate.shape()).build().ok()
}

/// Returns whether a bucket refills at another rate than its capacity in its window.
pub(super) fn has_own_refill(limit: &Limit) -> bool {
    let rate = limit.rate();
    let is_plain = rate.refill() == limit.capacity() && rate.period() == limit.window();
    limit.algorithm().is_bucket() && !is_plain
}

/// Returns the name of an algorithm in rules.
pub(super) fn algorithm_name(algorithm: Algorithm) -> &'static str {
    let names = Algorithm::NAMES.iter();
    let mut named = names.filter(|(_, known)| *known == algorithm);
    named.next().map_or("", |(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn plain(algorithm: Algorithm) -> Limit {
        Limit::builder(algorithm, 10, SECOND).build().unwrap()
    }

    fn shaped() -> Limit {
        let limit = Limit::builder(Algorithm::LeakyBucket, 10, SECOND);
        limit.shape(true).build().unwrap()
    }

    #[test]
    fn a_plain_limit_keeps_its_numbers_under_every_algorithm() {
        let rates = || {
            let names = Algorithm::NAMES.into_iter();
            names.filter(|(_, algorithm)| *algorithm != Algorithm::Concurrency)
        };
        for (_, from) in rates() {
            for (_, to) in rates() {
                let expected = match to {
                    Algorithm::LeakyBucket => shaped(),
                    other => plain(other),
                };
                let (limit, differences) = convert(to, &plain(from), false).unwrap();
                assert_eq!((limit, differences), (expected, Differences::default()));
            }
        }
    }

    #[test]
    fn a_refill_of_its_own_becomes_the_time_to_fill() {
        let bucket = Limit::builder(Algorithm::TokenBucket, 100, SECOND)
            .refill(10)
            .period(SECOND)
            .build()
            .unwrap();
        let (window, differences) = convert(Algorithm::FixedWindow, &bucket, false).unwrap();
        assert_eq!(
            (window.capacity(), window.window().get()),
            (100, 10_000_000)
        );
        assert!(differences.refill);
        let (leaky, differences) = convert(Algorithm::LeakyBucket, &bucket, false).unwrap();
        assert_eq!(
            (leaky.rate().refill(), leaky.window().get()),
            (10, 1_000_000)
        );
        assert_eq!(differences, Differences::default());
    }

    #[test]
    fn what_the_other_algorithm_lacks_is_ignored() {
        let (limit, differences) = convert(Algorithm::SlidingLog, &shaped(), false).unwrap();
        assert!(!limit.rate().shape() && differences.shape);
        let waits = Limit::builder(Algorithm::TokenBucket, 10, SECOND);
        let waits = waits.max_wait(SECOND).build().unwrap();
        let (limit, differences) = convert(Algorithm::LeakyBucket, &waits, true).unwrap();
        assert_eq!(limit.rate().max_wait(), waits.rate().max_wait());
        assert!(!limit.rate().shape() && differences == Differences::default());
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let (_, differences) = convert(algorithm, &waits, true).unwrap();
            assert!(differences.wait);
        }
        // A window has no `max_wait` to convert.
        let window = plain(Algorithm::FixedWindow);
        let (_, differences) = convert(Algorithm::TokenBucket, &window, true).unwrap();
        assert!(differences.wait);
    }

    #[test]
    fn a_capacity_too_large_for_a_log_is_an_error() {
        let large = Limit::builder(Algorithm::TokenBucket, 100_001, SECOND);
        let large = large.build().unwrap();
        assert!(convert(Algorithm::SlidingLog, &large, false).is_err());
        assert!(convert(Algorithm::SlidingWindow, &large, false).is_ok());
    }

    #[test]
    fn algorithms_have_their_names_in_rules() {
        assert_eq!(algorithm_name(Algorithm::TokenBucket), "token_bucket");
        assert_eq!(algorithm_name(Algorithm::SlidingWindow), "sliding_window");
    }
}
