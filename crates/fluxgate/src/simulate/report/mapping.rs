//! A limit under another algorithm.

use fluxgate_core::{Algorithm, Limit, LimitError};

/// What a limit has and the other algorithm takes in another way, or not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// A refill of its own became the window in which the bucket fills.
    pub(super) refill: bool,
    /// `shape` was left out.
    pub(super) shape: bool,
    /// `on_exceed: wait` is a plain denial, or was left out.
    pub(super) wait: bool,
}

/// The same limit under another algorithm. `waits` tells whether its rule has
/// `on_exceed: wait`.
///
/// A leaky bucket is shaped wherever it can be: that admits the same requests,
/// and shows when each of them goes on.
pub(super) fn under(
    algorithm: Algorithm,
    limit: &Limit,
    waits: bool,
) -> Result<(Limit, Differences), LimitError> {
    let rate = limit.rate();
    let was_bucket = limit.algorithm().is_bucket();
    let own_refill =
        was_bucket && (rate.refill() != limit.capacity() || rate.period() != limit.window());
    let window = match own_refill && !algorithm.is_bucket() {
        // As much at once and as much in the long run.
        true => std::time::Duration::from_micros(rate.fill().ceil()),
        false => limit.window().as_duration(),
    };
    let mut changed = Limit::builder(algorithm, limit.capacity(), window);
    if own_refill && algorithm.is_bucket() {
        let period = rate.period().as_duration();
        changed = changed.refill(rate.refill()).period(period);
    }
    let max_wait = rate.max_wait().filter(|_| algorithm.is_bucket());
    if let Some(max_wait) = max_wait {
        changed = changed.max_wait(max_wait.as_duration());
    }
    let shape = algorithm == Algorithm::LeakyBucket && max_wait.is_none();
    let differences = Differences {
        refill: own_refill && !algorithm.is_bucket(),
        shape: rate.shape() && !shape,
        wait: waits && max_wait.is_none(),
    };
    Ok((changed.shape(shape).build()?, differences))
}

/// The name that rules give it.
pub(super) fn name(algorithm: Algorithm) -> &'static str {
    let names = Algorithm::NAMES.iter();
    let mut named = names.filter(|(_, known)| *known == algorithm);
    named.next().map_or("", |(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
        for (_, from) in Algorithm::NAMES {
            for (_, to) in Algorithm::NAMES {
                let expected = match to {
                    Algorithm::LeakyBucket => shaped(),
                    other => plain(other),
                };
                let (limit, differences) = under(to, &plain(from), false).unwrap();
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
        let (window, differences) = under(Algorithm::FixedWindow, &bucket, false).unwrap();
        assert_eq!(
            (window.capacity(), window.window().get()),
            (100, 10_000_000)
        );
        assert!(differences.refill);
        let (leaky, differences) = under(Algorithm::LeakyBucket, &bucket, false).unwrap();
        assert_eq!(
            (leaky.rate().refill(), leaky.window().get()),
            (10, 1_000_000)
        );
        assert_eq!(differences, Differences::default());
    }

    #[test]
    fn what_the_other_does_not_take_is_left_out() {
        let (limit, differences) = under(Algorithm::SlidingLog, &shaped(), false).unwrap();
        assert!(!limit.rate().shape() && differences.shape);
        let waits = Limit::builder(Algorithm::TokenBucket, 10, SECOND);
        let waits = waits.max_wait(SECOND).build().unwrap();
        let (limit, differences) = under(Algorithm::LeakyBucket, &waits, true).unwrap();
        assert_eq!(limit.rate().max_wait(), waits.rate().max_wait());
        assert!(!limit.rate().shape() && differences == Differences::default());
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let (_, differences) = under(algorithm, &waits, true).unwrap();
            assert!(differences.wait);
        }
        // A window does not remember how long it would have waited.
        let window = plain(Algorithm::FixedWindow);
        let (_, differences) = under(Algorithm::TokenBucket, &window, true).unwrap();
        assert!(differences.wait);
    }

    #[test]
    fn what_a_log_cannot_hold_is_refused() {
        let large = Limit::builder(Algorithm::TokenBucket, 100_001, SECOND);
        let large = large.build().unwrap();
        assert!(under(Algorithm::SlidingLog, &large, false).is_err());
        assert!(under(Algorithm::SlidingWindow, &large, false).is_ok());
    }

    #[test]
    fn names_are_those_of_rules() {
        assert_eq!(name(Algorithm::TokenBucket), "token_bucket");
        assert_eq!(name(Algorithm::SlidingWindow), "sliding_window");
    }
}
