//! How much is asked for, and when.

use std::time::Duration;

use fluxgate_core::{Algorithm, Lease, Percent};

use super::*;

const SECOND: u64 = 1_000_000;

/// Half of 20,000 an hour, for a second.
fn lease() -> BandLease {
    let hour = Duration::from_secs(3_600);
    let limit = Limit::builder(Algorithm::FixedWindow, 20_000, hour);
    let lease = Lease::new(Percent::new(50), Duration::from_secs(1));
    BandLease::new(&lease, &limit.build().unwrap()).unwrap()
}

/// What is left of a window that goes on for so long.
fn rest(remaining: u32, window_left: u64, now: u64) -> Verdict {
    Verdict {
        at: Timestamp::saturating_from_micros(now),
        remaining,
        part: 0,
        retry_after: Retry::NOW,
        reset_after: Micros::new(window_left),
        delay: Micros::ZERO,
    }
}

/// Answers the ask of this instant with so many units.
fn grant(kept: &mut KeptLease, units: u32, now: u64) {
    let grant = Grant {
        units,
        ends: now + SECOND,
        window_left: Some(Micros::new(600 * SECOND)),
        outstanding: units,
    };
    let rest = rest(10_000, 600 * SECOND, now);
    kept.granted(&lease(), now, &grant, &rest, now);
}

/// Requests come in bursts of 20, a millisecond apart.
#[test]
fn units_here_are_at_most_those_used_within_a_lease_twice_over() {
    let lease = lease();
    let mut kept = KeptLease::new(&lease, 0);
    // With those that made the key hot.
    let (mut used, mut asks) = (2, 0);
    for request in 0..400_u64 {
        let now = request / 20 * 1_000;
        used += 1;
        if kept.available(now, &mut 0) > 0 {
            kept.spend(1, now);
            continue;
        }
        let ask = kept.ask(&lease, 1, now).unwrap();
        assert!(u64::from(ask.want) <= 2 * used, "{ask:?} after {used}");
        kept.used(1, now);
        grant(&mut kept, ask.want, now);
        asks += 1;
    }
    assert!(asks <= 8, "{asks} asks");
}

#[test]
fn without_recent_use_one_unit_is_asked_for() {
    let lease = lease();
    let mut kept = KeptLease::new(&lease, 0);
    kept.used(500, 0);
    assert!(kept.ask(&lease, 0, 1_000).unwrap().want > 100);
    grant(&mut kept, 0, 1_000);
    assert_eq!(kept.ask(&lease, 0, 5 * SECOND).unwrap().want, 1);
}

#[test]
fn asks_without_an_answer_cost_no_more_than_one_with_an_answer() {
    let lease = lease();
    let mut kept = KeptLease::new(&lease, 0);
    kept.used(100, 0);
    let mut lost = 0;
    for tenth in 0..10 {
        if let Some(ask) = kept.ask(&lease, 0, tenth * SECOND / 10) {
            lost += ask.want;
            kept.unanswered();
        }
    }
    // 102 were used, and one was asked for after that was too long ago.
    assert!((100..=204).contains(&lost), "{lost}");
    assert!(kept.ask(&lease, 0, 10 * SECOND).is_some());
}

#[test]
fn units_that_a_lost_ask_gave_back_may_be_out() {
    let lease = lease();
    let mut kept = KeptLease::new(&lease, 0);
    kept.used(100, 0);
    kept.ask(&lease, 0, 0).unwrap();
    grant(&mut kept, 150, 0);
    kept.return_all(1_000);
    kept.unanswered();
    let ask = kept.ask(&lease, 0, 2_000).unwrap();
    assert_eq!(ask.want, 204 - 150);
}

#[test]
fn near_the_end_of_a_window_less_is_asked_for() {
    let lease = lease();
    let mut kept = KeptLease::new(&lease, 0);
    kept.used(1_000, 0);
    let whole = kept.ask(&lease, 0, SECOND / 2).unwrap().want;
    kept.granted(
        &lease,
        SECOND / 2,
        &Grant {
            units: 0,
            ends: SECOND,
            window_left: Some(Micros::new(SECOND / 10)),
            outstanding: 0,
        },
        &rest(0, SECOND / 10, SECOND / 2),
        SECOND / 2,
    );
    let part = kept.ask(&lease, 0, SECOND / 2).unwrap().want;
    assert!(part <= whole / 9, "{part} of {whole}");
}

/// Of a key at its limit.
#[test]
fn a_short_grant_is_spent_before_the_key_refuses() {
    let lease = lease();
    let mut kept = KeptLease::new(&lease, 0);
    kept.denied(0, 0);
    kept.used(1_000, 0);
    kept.ask(&lease, 1, 0).unwrap();
    grant(&mut kept, 10, 0);
    kept.pause(&lease, &rest(0, 600 * SECOND, 0), 0, 0);
    // However long it takes.
    for request in 0..10 {
        let now = 10_000 * request;
        assert!(kept.available(now, &mut 0) > 0);
        assert!(!kept.spend(1, now), "the keeper does not ask");
    }
    // For a fiftieth of the lease.
    assert!(kept.refusal(1, 0, 100_000).is_some());
    assert!(kept.refusal(1, 0, 119_999).is_some());
    assert!(kept.refusal(1, 0, 120_000).is_none());
}
