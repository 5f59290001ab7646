//! Limits for keys, without rules.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::memory::Retention;
use fluxgate_core::store::{Checks, Group, Mode, Subject};
use fluxgate_core::{
    Algorithm, Band, DirectLimiter, KeyedLimiter, Limit, LocalStore, ManualClock, MemoryStore,
    Quota,
};
use proptest::prelude::*;

use crate::support::{ALGORITHMS, HOUR, START, instant};

const SECOND: u64 = 1_000_000;

fn limiter(quotas: impl IntoIterator<Item = Quota>) -> (KeyedLimiter<ManualClock>, ManualClock) {
    let clock = ManualClock::new(instant(START));
    let store = MemoryStore::new(clock.clone(), 100, Retention::UntilFull);
    (KeyedLimiter::with_store(quotas, store), clock)
}

#[test]
fn keys_are_limited_by_themselves_and_refill() {
    let (limiter, clock) = limiter(Quota::per_minute(2));
    assert_eq!(limiter.check_n("a", 2).unwrap().remaining, 0);
    let denied = limiter.check("a").unwrap_err();
    assert_eq!(denied.retry_after, Some(Duration::from_secs(30)));
    assert_eq!(denied.remaining, 0);
    assert_eq!(denied.to_string(), "the limit is exceeded; retry after 30s");
    assert_eq!(limiter.check("b").unwrap().remaining, 1);
    clock.set(instant(START + HOUR));
    assert!(limiter.check_n("a", 2).is_ok());
    assert_eq!(limiter.store().len(), 2);
}

#[test]
fn a_call_for_more_than_the_quota_never_passes() {
    for algorithm in ALGORITHMS {
        let (limiter, _) = limiter(Quota::per_minute(2).algorithm(algorithm));
        let denied = limiter.check_n("a", 3).unwrap_err();
        assert!(denied.is_final(), "{algorithm:?}");
        assert!(denied.to_string().ends_with("it never has that many units"));
        assert_eq!(limiter.peek("a").unwrap().remaining, 2, "{algorithm:?}");
    }
}

#[test]
fn a_burst_is_taken_at_once_and_returns_at_the_rate() {
    let (limiter, clock) = limiter(Quota::per_second(10).burst(50));
    assert_eq!(limiter.check_n("a", 50).unwrap().remaining, 0);
    clock.set(instant(START + SECOND));
    assert!(limiter.check_n("a", 10).is_ok());
    assert_eq!(
        limiter.check("a").unwrap_err().retry_after,
        Some(Duration::from_millis(100))
    );
}

#[test]
fn several_quotas_pass_together_or_not_at_all() {
    let (limiter, clock) = limiter([Quota::per_second(2), Quota::per_hour(3)]);
    assert!(limiter.check("a").is_ok() && limiter.check("a").is_ok());
    let denied = limiter.check("a").unwrap_err();
    assert_eq!(denied.retry_after, Some(Duration::from_millis(500)));
    clock.set(instant(START + SECOND));
    // The denied call was not charged to the hour.
    assert_eq!(limiter.check("a").unwrap().remaining, 0);
    let denied = limiter.check("a").unwrap_err();
    assert_eq!(denied.retry_after, Some(Duration::from_secs(1_199)));
}

#[test]
fn refunds_and_resets_return_units() {
    for algorithm in ALGORITHMS {
        let (limiter, _) = limiter(Quota::per_hour(5).algorithm(algorithm));
        assert!(!limiter.reset("a"));
        assert_eq!(limiter.check_n("a", 5).unwrap().remaining, 0);
        assert_eq!(limiter.refund("a", 2), 2, "{algorithm:?}");
        // Never above the quota.
        assert_eq!(limiter.refund("a", 9), 5, "{algorithm:?}");
        assert!(limiter.check_n("a", 4).is_ok());
        assert!(limiter.reset("a"));
        assert_eq!(limiter.peek("a").unwrap().remaining, 5, "{algorithm:?}");
    }
}

#[test]
fn whatever_can_be_hashed_is_a_key() {
    let (limiter, _) = limiter(Quota::per_hour(1));
    let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
    assert!(limiter.check(&ip).is_ok());
    assert!(limiter.check(&(ip, "/login")).is_ok());
    assert!(limiter.check(&7_u64).is_ok());
    assert!(limiter.check("7").is_ok());
    assert!(limiter.check(b"7".as_slice()).is_ok());
    // Pairs are kept apart wherever they are split.
    assert!(limiter.check(&("ab", "c")).is_ok());
    assert!(limiter.check(&("a", "bc")).is_ok());
    assert!(limiter.check(&String::from("7")).is_err());
    assert!(limiter.check(&(ip, "/login")).is_err());
}

#[test]
fn clones_share_their_state() {
    let (limiter, _) = limiter(Quota::per_hour(1));
    let other = limiter.clone();
    assert!(limiter.check("a").is_ok());
    assert!(other.check("a").is_err());
}

#[test]
fn a_direct_limiter_has_one_quota_for_all() {
    let clock = ManualClock::new(instant(START));
    let quotas = [Quota::per_second(2), Quota::per_hour(3)];
    let limiter = DirectLimiter::with_clock(quotas, clock.clone());
    assert!(limiter.check_n(2).is_ok());
    assert!(limiter.peek().is_err());
    clock.set(instant(START + SECOND));
    assert_eq!(limiter.check().unwrap().remaining, 0);
    assert_eq!(limiter.refund(3), 2);
    assert!(limiter.check().is_ok());
    assert!(limiter.reset() && !limiter.reset());
}

#[test]
fn reservations_are_queued_and_return_if_they_are_dropped() {
    let (limiter, clock) = limiter(Quota::per_minute(1));
    let minute = Duration::from_secs(60);
    let reserve = |minutes| limiter.reserve("a", minutes * minute);
    assert_eq!(reserve(1).unwrap().into_delay(), Duration::ZERO);
    let second = reserve(2).unwrap();
    let third = reserve(2).unwrap();
    assert_eq!((second.delay(), third.delay()), (minute, 2 * minute));
    let denied = reserve(2).unwrap_err();
    assert_eq!(denied.retry_after, Some(3 * minute));
    // The last one in the queue returns its unit, one that others wait behind does not.
    drop(third);
    let third = reserve(2).unwrap();
    drop(second);
    assert!(reserve(2).is_err());
    assert_eq!(third.into_delay(), 2 * minute);
    clock.set(instant(START + HOUR));
    assert!(limiter.check("a").is_ok());
}

#[test]
fn windows_and_logs_are_not_reserved() {
    for algorithm in ALGORITHMS.into_iter().filter(|it| !it.is_bucket()) {
        let (limiter, _) = limiter(Quota::per_minute(1).algorithm(algorithm));
        let minute = Duration::from_secs(60);
        assert_eq!(
            limiter.reserve("a", minute).unwrap().into_delay(),
            Duration::ZERO
        );
        assert!(limiter.reserve("a", minute).is_err(), "{algorithm:?}");
    }
}

/// Ten callers wait for five units a second; each is served when its unit returns.
#[tokio::test(start_paused = true)]
async fn callers_wait_their_turn() {
    let (limiter, _) = limiter(Quota::per_second(5));
    let start = tokio::time::Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let limiter = limiter.clone();
        callers.spawn(async move {
            limiter.until_ready("a").await;
            start.elapsed().as_millis() / 10 * 10
        });
    }
    let mut ended = callers.join_all().await;
    ended.sort_unstable();
    assert_eq!(ended, [0, 0, 0, 0, 0, 200, 400, 600, 800, 1_000]);
    let denied = limiter.until_n_ready("a", 6).await.unwrap_err();
    assert!(denied.is_final());
}

/// A caller that gives up while it waits returns its unit.
#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_returns_its_unit() {
    let (limiter, _) = limiter(Quota::per_minute(1));
    limiter.until_ready("a").await;
    let second = Duration::from_secs(1);
    let waited = tokio::time::timeout(second, limiter.until_ready("a")).await;
    assert!(waited.is_err());
    // The clock of the limiter stands still, so the queue is as it was.
    let delay = limiter.reserve("a", Duration::MAX).unwrap().into_delay();
    assert_eq!(delay, Duration::from_secs(60));
}

proptest! {
    /// Quotas decide like the bands of a rule with the same numbers.
    #[test]
    fn a_keyed_limiter_decides_as_its_store(
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        units in 1_u32..50,
        millis in 1_u64..5_000,
        calls in prop::collection::vec((0_u64..3_000_000, 0_u32..60), 1..60),
    ) {
        let window = Duration::from_millis(millis);
        let quota = Quota::per(units, window).algorithm(algorithm);
        let (limiter, clock) = limiter([quota, Quota::per_minute(200)]);
        let store = MemoryStore::new(clock.clone(), 100, Retention::UntilFull);
        let first = Limit::builder(algorithm, units.into(), window).build().unwrap();
        let minute = Duration::from_secs(60);
        let second = Limit::builder(Algorithm::TokenBucket, 200, minute).build().unwrap();
        let bands = [Band::new("x", first), Band::new("y", second)];
        let mut now = START;
        for (later, cost) in calls {
            now += later;
            clock.set(instant(now));
            let subject = Subject { rule: RuleNumber::NONE, bytes: b"key" };
            let mut checks = Checks::new(Mode::Take);
            checks.push(subject, &bands, cost.into(), Group::ENFORCED);
            let verdicts = store.decide_now(&checks);
            let wait = verdicts.iter().map(|verdict| verdict.retry_after).max().unwrap();
            let least = verdicts.iter().map(|verdict| verdict.remaining).min();
            match limiter.check_n("key", cost) {
                Ok(permit) => {
                    prop_assert!(verdicts.iter().all(|verdict| verdict.passes()));
                    prop_assert_eq!(Some(permit.remaining), least);
                    let longest = verdicts.iter().map(|verdict| verdict.reset_after).max();
                    prop_assert_eq!(permit.reset_after, longest.unwrap().as_duration());
                }
                Err(denied) => {
                    let wait = wait.after().map(|wait| wait.as_duration());
                    prop_assert_eq!(denied.retry_after, wait);
                    prop_assert_eq!(Some(denied.remaining), least);
                }
            }
        }
    }
}

#[test]
fn keys_are_counted_whatever_the_number_of_quotas() {
    let clock = ManualClock::default();
    let quotas = [Quota::per_hour(2), Quota::per_day(3)];
    let limiter = KeyedLimiter::with_clock(quotas, clock);
    assert!(limiter.is_empty());
    for key in 0..10 {
        assert!(limiter.check(&key).is_ok());
    }
    assert_eq!((limiter.len(), limiter.store().len()), (10, 20));
    assert_eq!(limiter.peek_n(&0, 1).unwrap().remaining, 1);
    assert!(limiter.peek_n(&0, 2).is_err());
    assert!(limiter.peek_n(&0, 4).unwrap_err().is_final());
    let direct = DirectLimiter::new(Quota::per_hour(2));
    assert!(direct.peek_n(3).unwrap_err().is_final());
    assert_eq!(
        direct.reserve(Duration::ZERO).unwrap().into_delay(),
        Duration::ZERO
    );
    assert_eq!(direct.peek().unwrap().remaining, 1);
}

#[test]
fn no_units_can_always_be_taken_and_show_what_is_left() {
    let (limiter, _) = limiter(Quota::per_minute(2));
    assert!(limiter.check_n("a", 2).is_ok());
    assert!(limiter.check("a").is_err());
    for permit in [limiter.check_n("a", 0), limiter.peek_n("a", 0)] {
        let permit = permit.unwrap();
        assert_eq!(permit.remaining, 0);
        assert_eq!(permit.reset_after, Duration::from_secs(60));
    }
    let denied = limiter.check_n("a", 3).unwrap_err();
    assert!(denied.is_final() && denied.retry_after.is_none());
    let message = "the limit is exceeded; it never has that many units";
    assert_eq!(denied.to_string(), message);
}
