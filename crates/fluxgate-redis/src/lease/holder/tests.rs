//! How many units a holder requests, and when.

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

/// The balance of a window that ends after `window_left`.
fn balance(remaining: u32, window_left: u64, now: u64) -> Verdict {
    Verdict {
        at: Timestamp::saturating_from_micros(now),
        remaining,
        part: 0,
        retry_after: Retry::NOW,
        reset_after: Micros::new(window_left),
        delay: Micros::ZERO,
    }
}

fn moment(at: u64) -> Moment {
    Moment { at, generation: 0 }
}

fn has_units(holder: &mut LeaseHolder, now: u64) -> bool {
    holder.expire(now);
    holder.units() > 0
}

/// Grants units in reply to the request of this instant.
fn grant(holder: &mut LeaseHolder, units: u32, now: u64) {
    let grant = Grant {
        units,
        ends: now + SECOND,
        window_left: Some(Micros::new(600 * SECOND)),
        outstanding: units,
    };
    let balance = balance(10_000, 600 * SECOND, now);
    holder.add_grant(&lease(), now, &GrantReply { grant, balance }, now);
}

/// Requests come in bursts of 20, a millisecond apart.
#[test]
fn units_here_are_at_most_those_used_within_a_lease_twice_over() {
    let lease = lease();
    let mut holder = LeaseHolder::new(&lease, 0);
    // With those that made the key hot.
    let (mut used, mut requests) = (2, 0);
    for request in 0..400_u64 {
        let now = request / 20 * 1_000;
        used += 1;
        if has_units(&mut holder, now) {
            holder.spend(1, now);
            continue;
        }
        let sent = holder.request(&lease, 1, now).unwrap();
        assert!(u64::from(sent.want) <= 2 * used, "{sent:?} after {used}");
        holder.record_use(1, now);
        grant(&mut holder, sent.want, now);
        requests += 1;
    }
    assert!(requests <= 8, "{requests} requests");
}

#[test]
fn without_recent_use_one_unit_is_requested() {
    let lease = lease();
    let mut holder = LeaseHolder::new(&lease, 0);
    holder.record_use(500, 0);
    assert!(holder.request(&lease, 0, 1_000).unwrap().want > 100);
    grant(&mut holder, 0, 1_000);
    assert_eq!(holder.request(&lease, 0, 5 * SECOND).unwrap().want, 1);
}

#[test]
fn requests_without_an_answer_cost_no_more_than_one_with_an_answer() {
    let lease = lease();
    let mut holder = LeaseHolder::new(&lease, 0);
    holder.record_use(100, 0);
    let mut lost = 0;
    for tenth in 0..10 {
        if let Some(sent) = holder.request(&lease, 0, tenth * SECOND / 10) {
            lost += sent.want;
            holder.record_no_answer();
        }
    }
    // 102 were used, and one was requested after that was too long ago.
    assert!((100..=204).contains(&lost), "{lost}");
    assert!(holder.request(&lease, 0, 10 * SECOND).is_some());
}

#[test]
fn units_that_a_lost_request_returned_may_be_out() {
    let lease = lease();
    let mut holder = LeaseHolder::new(&lease, 0);
    holder.record_use(100, 0);
    holder.request(&lease, 0, 0).unwrap();
    grant(&mut holder, 150, 0);
    holder.return_all(1_000);
    holder.record_no_answer();
    let sent = holder.request(&lease, 0, 2_000).unwrap();
    assert_eq!(sent.want, 204 - 150);
}

#[test]
fn near_the_end_of_a_window_less_is_requested() {
    let lease = lease();
    let mut holder = LeaseHolder::new(&lease, 0);
    holder.record_use(1_000, 0);
    let whole = holder.request(&lease, 0, SECOND / 2).unwrap().want;
    let reply = GrantReply {
        grant: Grant {
            units: 0,
            ends: SECOND,
            window_left: Some(Micros::new(SECOND / 10)),
            outstanding: 0,
        },
        balance: balance(0, SECOND / 10, SECOND / 2),
    };
    holder.add_grant(&lease, SECOND / 2, &reply, SECOND / 2);
    let part = holder.request(&lease, 0, SECOND / 2).unwrap().want;
    assert!(part <= whole / 9, "{part} of {whole}");
}

#[test]
fn a_short_grant_is_spent_before_the_key_refuses() {
    let lease = lease();
    let mut holder = LeaseHolder::new(&lease, 0);
    holder.record_denial(moment(0));
    holder.record_use(1_000, 0);
    holder.request(&lease, 1, 0).unwrap();
    grant(&mut holder, 10, 0);
    holder.refuse_when_spent(&lease, &balance(0, 600 * SECOND, 0), moment(0));
    // However long it takes.
    for request in 0..10 {
        let now = 10_000 * request;
        assert!(has_units(&mut holder, now));
        assert!(!holder.spend(1, now), "the keeper requests nothing");
    }
    // For a fiftieth of the lease.
    assert!(holder.refuse_again(1, moment(100_000)).is_some());
    assert!(holder.refuse_again(1, moment(119_999)).is_some());
    assert!(holder.refuse_again(1, moment(120_000)).is_none());
}

#[test]
fn units_count_for_as_long_as_a_lease() {
    let mut recent = RecentUse::new(100, 3, 1_000);
    assert_eq!(recent.units(1_000), 3);
    recent.add(5, 1_099);
    assert_eq!(recent.units(1_099), 8);
    assert_eq!(recent.units(1_100), 8);
    recent.add(2, 1_125);
    assert_eq!(recent.units(1_125), 8, "three quarters of 8, and 2");
    assert_eq!(recent.units(1_199), 2);
    assert_eq!(recent.units(1_250), 1, "a half of 2");
    assert_eq!(recent.units(1_300), 0);
}

#[test]
fn nothing_counts_after_a_pause() {
    let mut recent = RecentUse::new(100, 3, 1_000);
    assert_eq!(recent.units(1_200), 0);
    recent.add(7, 5_000);
    assert_eq!(recent.units(5_050), 7);
    // A thread that was late.
    recent.add(1, 4_990);
    assert_eq!(recent.units(4_990), 8);
}
