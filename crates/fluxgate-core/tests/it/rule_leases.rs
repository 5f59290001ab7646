//! The leases of a rule's bands: what a rule file says, in units.

use std::time::Duration;

use fluxgate_core::algorithm::{LeaseRequest, Outstanding, balance_of, grant};
use fluxgate_core::lease::BandLease;
use fluxgate_core::store::Micros;
use fluxgate_core::{
    Algorithm, Band, Calendar, CalendarUnit, Lease, Limit, LimitBuilder, Percent, RuleSets,
};

use crate::support::{Gate, global, instant, parse};

const SECOND: Duration = Duration::from_secs(1);

/// A fifth, for a second.
const LEASE: Lease = Lease::new(Percent::new(20), SECOND);

fn lease_of(limit: LimitBuilder) -> Option<BandLease> {
    BandLease::new(&LEASE, &limit.build().unwrap())
}

/// Returns a rule set `s` with one rule `r` that leases a fifth of its bands.
fn leased(fields: &str) -> RuleSets {
    let lease = "lease: { share: 20%, for: 1s }";
    parse(&format!(
        "rule_sets: {{ s: {{ rules: [ {{ id: r, scope: per_user, {lease}, {fields} }} ] }} }}"
    ))
}

/// Returns the bands of the rule.
fn bands(sets: &RuleSets) -> Vec<Band> {
    let rule = sets.get("s").unwrap().rule("r").unwrap();
    rule.bands().to_vec()
}

#[test]
fn a_bucket_keeps_its_refill_and_lends_a_share_of_its_capacity() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let plain = Limit::builder(algorithm, 1_000, SECOND);
        let lease = lease_of(plain.clone()).unwrap();
        assert_eq!((lease.most(), lease.span()), (200, Micros::new(1_000_000)));
        let expected = Limit::builder(algorithm, 800, SECOND).refill(1_000);
        assert_eq!(*lease.shared(), expected.build().unwrap());
        assert_eq!(lease.shared().rate().refill(), 1_000);
        assert_eq!(lease.shared().rate().period(), Micros::new(1_000_000));

        // A rate of its own, and one that equals that of the smaller bucket.
        let minute = Duration::from_secs(60);
        for refill in [7, 800] {
            let limit = plain.clone().refill(refill).period(minute);
            let lease = lease_of(limit).unwrap();
            let expected = Limit::builder(algorithm, 800, SECOND);
            let expected = expected.refill(refill).period(minute).build().unwrap();
            assert_eq!(*lease.shared(), expected);
            assert_eq!(lease.shared().rate().refill(), refill);
        }
    }
}

#[test]
fn a_window_lends_a_share_and_keeps_its_capacity() {
    let calendar = Calendar::new(CalendarUnit::Month);
    for limit in [
        Limit::builder(Algorithm::FixedWindow, 1_000, SECOND),
        Limit::calendar(1_000, calendar),
    ] {
        let lease = lease_of(limit.clone()).unwrap();
        assert_eq!(lease.most(), 200);
        assert_eq!(*lease.shared(), limit.build().unwrap());
    }
}

#[test]
fn a_grant_of_a_calendar_window_ends_with_the_window() {
    let lease = lease_of(Limit::calendar(1_000, Calendar::new(CalendarUnit::Month))).unwrap();
    // 2026-12-01T00:00:00Z.
    let edge = 1_796_083_200_000_000;
    for before in [1, 500, 999_999] {
        let mut kept = Outstanding::default();
        let request = LeaseRequest::new(10, []);
        let (granted, cell) = grant(&lease, None, &mut kept, instant(edge - before), &request);
        assert_eq!((granted.units, granted.ends), (10, edge));
        let usable = granted.usable_for(&lease).get();
        assert!((0..before).contains(&usable), "{usable} of {before}");
        // Nothing of it is out, or counted, in the next one.
        let (next, _) = grant(
            &lease,
            cell,
            &mut kept,
            instant(edge),
            &LeaseRequest::default(),
        );
        assert_eq!((next.units, next.outstanding), (0, 0));
        assert_eq!(
            balance_of(lease.shared(), cell, instant(edge)).remaining,
            1_000
        );
    }
}

#[test]
fn limits_of_other_kinds_and_limits_that_delay_have_no_leases() {
    let limit = |algorithm| Limit::builder(algorithm, 1_000, SECOND);
    for limit in [
        limit(Algorithm::SlidingLog),
        limit(Algorithm::SlidingWindow),
        Limit::concurrency(1_000),
        limit(Algorithm::TokenBucket).max_wait(SECOND),
        limit(Algorithm::LeakyBucket).shape(true),
    ] {
        assert_eq!(lease_of(limit.clone()), None, "{limit:?}");
    }
}

#[test]
fn a_lease_has_at_least_two_units() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow] {
        let most = |capacity| {
            let lease = lease_of(Limit::builder(algorithm, capacity, SECOND));
            lease.map(|lease| lease.most())
        };
        assert_eq!(most(9), None);
        assert_eq!(most(10), Some(2));
        assert_eq!(most(14), Some(2), "rounded down");
        assert_eq!(most(1_000_000_000), Some(200_000_000));
    }
    let half = Lease::new(Percent::new(50), SECOND);
    let limit = Limit::builder(Algorithm::TokenBucket, 5, SECOND);
    let lease = BandLease::new(&half, &limit.build().unwrap()).unwrap();
    assert_eq!((lease.most(), lease.shared().capacity()), (2, 3));
}

#[test]
fn the_bands_of_a_rule_and_of_its_overrides_have_leases() {
    let sets = leased(
        "bands: [ 1000/s, { rate: 10/s, burst: 50 } ], \
         overrides: [ { identity: ann, bands: [ 5000/s ] } ]",
    );
    let bands = bands(&sets);
    let leases: Vec<_> = bands
        .iter()
        .map(|band| Some(band.lease()?.most()))
        .collect();
    assert_eq!(leases, [Some(200), Some(10)]);
    let shared: Vec<_> = { bands.iter() }
        .map(|band| band.shared_limit().capacity())
        .collect();
    assert_eq!(shared, [800, 40]);
    assert_eq!(bands[0].capacity(), 1_000, "of the rule, as before");

    // All bands, including those of overrides, through the one method that sees them.
    let mut shares = Vec::new();
    let same = sets.with_limits(|_, _, limit| {
        shares.push(limit.capacity());
        Some(*limit)
    });
    assert_eq!(shares, [1_000, 50, 5_000]);
    assert_eq!(same, sets, "with their leases");
}

/// A request needs units of all its bands, so a lease of some of them would only cost quota.
#[test]
fn all_bands_of_a_rule_have_leases_or_none_has() {
    let sets = leased(
        "bands: [ 1000/s, 4/s ], overrides: [ { identity: ann, bands: [ 5000/s, 100/s ] } ]",
    );
    let bands = bands(&sets);
    assert!(bands.iter().all(|band| band.lease().is_none()));
    assert_eq!(bands[0].shared_limit().capacity(), 1_000);
}

#[test]
fn bands_with_other_limits_have_leases_of_those() {
    let sets = leased("bands: [ 1000/s ]");
    let smaller = sets.with_limits(|_, _, _| {
        let limit = Limit::builder(Algorithm::TokenBucket, 100, SECOND);
        limit.build().ok()
    });
    let bands = bands(&smaller);
    assert_eq!(bands[0].lease().unwrap().most(), 20);
    assert_eq!(bands[0].shared_limit().capacity(), 80);
}

#[test]
fn a_rule_that_is_decided_call_by_call_has_no_leases() {
    for fields in [
        "mode: shadow, bands: [ 1000/s ]",
        "on_exceed: wait, bands: [ 1000/s ]",
        "on_exceed: wait, algorithm: fixed_window, bands: [ 1000/s ]",
        "algorithm: leaky_bucket, shape: true, bands: [ 1000/s ]",
        "algorithm: sliding_log, bands: [ 1000/s ]",
        "algorithm: concurrency, bands: [ { capacity: 1000 } ]",
    ] {
        let bands = bands(&leased(fields));
        assert_eq!(bands[0].lease(), None, "{fields}");
        assert_eq!(bands[0].shared_limit(), bands[0].limit());
    }
    let rolled_out = leased("rollout: 10%, bands: [ 1000/s ]");
    assert!(bands(&rolled_out)[0].lease().is_some());
}

#[test]
fn another_lease_makes_other_bands_and_other_rules() {
    let rules = |lease: &str| global(&format!("{lease} bands: [ 1000/s ]"));
    let lease = |share, span| rules(&format!("lease: {{ share: {share}, for: {span} }},"));
    let all = [
        rules(""),
        lease("20%", "1s"),
        lease("21%", "1s"),
        lease("20%", "2s"),
    ];
    for (index, one) in all.iter().enumerate() {
        for (other_index, other) in all.iter().enumerate() {
            let is_same = index == other_index;
            let (one, other) = (parse(one), parse(other));
            assert_eq!(one == other, is_same);
            let bands = |sets: &RuleSets| sets.only().unwrap().rules()[0].bands().to_vec();
            assert_eq!(bands(&one) == bands(&other), is_same);
        }
    }
}

#[test]
fn a_store_in_memory_ignores_leases_and_keeps_its_counters() {
    let rules = |lease: &str| {
        global(&format!(
            "{lease} bands: [ {{ capacity: 10, window: 1h }} ]"
        ))
    };
    let lease = "lease: { share: 50%, for: 1s },";
    let gate = Gate::new(&rules(lease));
    assert_eq!(gate.left(&[]), [10]);
    assert!(gate.take(7).allowed(), "more than what is not for leases");
    gate.replace(&rules(""));
    assert_eq!(gate.left(&[]), [3]);
    gate.replace(&rules(lease));
    assert!(gate.take(3).allowed());
    assert!(!gate.take(1).allowed());
}

#[test]
fn a_change_of_the_lease_resets_a_rule_that_resets_on_change() {
    let rules = |share: &str| {
        global(&format!(
            "lease: {{ share: {share}, for: 1s }}, reset_on_change: true, bands: [ 10/h ]"
        ))
    };
    let gate = Gate::new(&rules("20%"));
    let _ = gate.take(4);
    gate.replace(&rules("20.00%"));
    assert_eq!(gate.left(&[]), [6], "the same rule");
    gate.replace(&rules("30%"));
    assert_eq!(gate.left(&[]), [10]);
}
