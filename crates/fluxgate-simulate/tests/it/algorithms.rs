//! Every algorithm, line by line, against numbers worked out by hand.

use crate::support::{allowed, delayed, denied, one_rule, simulate};

/// Decides requests by one rule, each given as `TIME` or `TIME COST`.
fn decide(fields: &str, requests: &[&str]) -> String {
    let rules = &one_rule(&format!("scope: global, {fields}"));
    let lines = requests
        .iter()
        .map(|request| match request.split_once(' ') {
            Some((t, cost)) => format!("{{\"t\":{t},\"cost\":{cost}}}\n"),
            None => format!("{{\"t\":{request}}}\n"),
        });
    let run = simulate(rules, lines.collect::<String>());
    run.lines().join("\n")
}

#[track_caller]
fn check(fields: &str, requests: &[&str], expected: &[String]) {
    let given = decide(fields, requests);
    for (request, (given, expected)) in requests.iter().zip(given.lines().zip(expected)) {
        assert_eq!(given, expected, "request {request}");
    }
    assert_eq!(given.lines().count(), expected.len());
}

const B: &str = "r/b0";
const V: &[&str] = &["r/b0"];

#[test]
fn a_token_bucket_keeps_thirds_of_a_microsecond() {
    // A token takes 333333 1/3 µs.
    check(
        "bands: [ { capacity: 3, window: 1s } ]",
        &[
            "0", "0", "0", "0", "333333", "333334", "333334 4", "333334 0",
        ],
        &[
            allowed(0, (B, 3, 2), 333_334),
            allowed(0, (B, 3, 1), 666_667),
            allowed(0, (B, 3, 0), 1_000_000),
            denied(0, (B, 3, 0), 333_334, 1_000_000, V),
            // A third of a microsecond is still missing.
            denied(333_333, (B, 3, 0), 1, 666_667, V),
            // 999999 1/3 µs from full.
            allowed(333_334, (B, 3, 0), 1_000_000),
            denied(333_334, (B, 3, 0), None, 1_000_000, V),
            allowed(333_334, (B, 3, 0), 1_000_000),
        ],
    );
}

#[test]
fn a_token_bucket_refills_at_its_own_rate() {
    // Five tokens, two a second: half a second each.
    check(
        "bands: [ { capacity: 5, window: 10s, refill: 2, period: 1s } ]",
        &["0 5", "0", "1250000 2", "1250000", "3500000"],
        &[
            allowed(0, (B, 5, 0), 2_500_000),
            denied(0, (B, 5, 0), 500_000, 2_500_000, V),
            // Two and a half tokens are back; half a token stays.
            allowed(1_250_000, (B, 5, 0), 2_250_000),
            denied(1_250_000, (B, 5, 0), 250_000, 2_250_000, V),
            // Full again, to the microsecond.
            allowed(3_500_000, (B, 5, 4), 500_000),
        ],
    );
}

#[test]
fn gcra_is_another_name_of_the_token_bucket() {
    let requests = ["0", "0", "0", "333333", "333334", "400000 2", "2000000 3"];
    let band = "bands: [ { capacity: 3, window: 1s } ]";
    assert_eq!(
        decide(&format!("algorithm: gcra, {band}"), &requests),
        decide(&format!("algorithm: token_bucket, {band}"), &requests)
    );
}

#[test]
fn a_leaky_bucket_holds_its_capacity() {
    check(
        "algorithm: leaky_bucket, bands: [ { capacity: 2, window: 1s } ]",
        &["0", "0", "0", "499999", "500000", "500000 3"],
        &[
            allowed(0, (B, 2, 1), 500_000),
            allowed(0, (B, 2, 0), 1_000_000),
            denied(0, (B, 2, 0), 500_000, 1_000_000, V),
            denied(499_999, (B, 2, 0), 1, 500_001, V),
            allowed(500_000, (B, 2, 0), 1_000_000),
            denied(500_000, (B, 2, 0), None, 1_000_000, V),
        ],
    );
}

#[test]
fn a_leaky_bucket_that_shapes_delays_by_the_level_before() {
    check(
        "algorithm: leaky_bucket, shape: true, bands: [ { capacity: 2, window: 1s } ]",
        &["0", "0", "0", "250000", "500000", "5000000"],
        &[
            delayed(0, (B, 2, 1), 500_000, 0),
            delayed(0, (B, 2, 0), 1_000_000, 500_000),
            denied(0, (B, 2, 0), 500_000, 1_000_000, V),
            denied(250_000, (B, 2, 0), 250_000, 750_000, V),
            delayed(500_000, (B, 2, 0), 1_000_000, 500_000),
            delayed(5_000_000, (B, 2, 1), 500_000, 0),
        ],
    );
}

#[test]
fn a_fixed_window_ends_on_the_microsecond() {
    check(
        "algorithm: fixed_window, bands: [ { capacity: 2, window: 1s } ]",
        &[
            "999999 0",
            "999999",
            "999999",
            "999999",
            "1000000",
            "1400000 2",
        ],
        &[
            allowed(999_999, (B, 2, 2), 0),
            allowed(999_999, (B, 2, 1), 1),
            allowed(999_999, (B, 2, 0), 1),
            denied(999_999, (B, 2, 0), 1, 1, V),
            allowed(1_000_000, (B, 2, 1), 1_000_000),
            denied(1_400_000, (B, 2, 1), 600_000, 600_000, V),
        ],
    );
}

#[test]
fn a_sliding_log_drops_an_entry_exactly_a_window_old() {
    check(
        "algorithm: sliding_log, bands: [ { capacity: 2, window: 1s } ]",
        &["0", "400000", "999999", "1000000", "1000000 2", "2000000 2"],
        &[
            allowed(0, (B, 2, 1), 1_000_000),
            allowed(400_000, (B, 2, 0), 1_000_000),
            denied(999_999, (B, 2, 0), 1, 400_001, V),
            allowed(1_000_000, (B, 2, 0), 1_000_000),
            // Both entries must expire.
            denied(1_000_000, (B, 2, 0), 1_000_000, 1_000_000, V),
            allowed(2_000_000, (B, 2, 0), 1_000_000),
        ],
    );
}

#[test]
fn a_sliding_log_counts_two_requests_of_one_microsecond_as_two() {
    check(
        "algorithm: sliding_log, bands: [ { capacity: 2, window: 1s } ]",
        &["7", "7", "7"],
        &[
            allowed(7, (B, 2, 1), 1_000_000),
            allowed(7, (B, 2, 0), 1_000_000),
            denied(7, (B, 2, 0), 1_000_000, 1_000_000, V),
        ],
    );
}

#[test]
fn a_sliding_window_weighs_the_window_before() {
    check(
        "algorithm: sliding_window, bands: [ { capacity: 4, window: 1s } ]",
        &[
            "0 4",
            "0",
            "1249999",
            "1250000",
            "1250000",
            "1300000 0",
            "1500000",
            "3000000",
        ],
        &[
            allowed(0, (B, 4, 0), 2_000_000),
            // Four must have decayed to three in the next window.
            denied(0, (B, 4, 0), 1_250_000, 2_000_000, V),
            denied(1_249_999, (B, 4, 0), 1, 750_001, V),
            allowed(1_250_000, (B, 4, 0), 1_750_000),
            denied(1_250_000, (B, 4, 0), 250_000, 1_750_000, V),
            allowed(1_300_000, (B, 4, 0), 1_700_000),
            allowed(1_500_000, (B, 4, 0), 1_500_000),
            allowed(3_000_000, (B, 4, 3), 2_000_000),
        ],
    );
}

#[test]
fn a_rule_that_waits_reserves_future_units_up_to_max_wait() {
    check(
        "on_exceed: wait, max_wait: 2s, bands: [ { capacity: 1, window: 1s } ]",
        &["0", "0", "0", "0", "0 2", "1000000"],
        &[
            allowed(0, (B, 1, 0), 1_000_000),
            delayed(0, (B, 1, 0), 2_000_000, 1_000_000),
            delayed(0, (B, 1, 0), 3_000_000, 2_000_000),
            denied(0, (B, 1, 0), 3_000_000, 3_000_000, V),
            denied(0, (B, 1, 0), None, 3_000_000, V),
            delayed(1_000_000, (B, 1, 0), 3_000_000, 2_000_000),
        ],
    );
}

#[test]
fn a_window_cannot_reserve_units_so_on_exceed_wait_is_a_denial() {
    for algorithm in ["fixed_window", "sliding_log"] {
        check(
            &format!(
                "algorithm: {algorithm}, on_exceed: wait, bands: [ {{ capacity: 1, window: 1s }} ]"
            ),
            &["0", "0"],
            &[
                allowed(0, (B, 1, 0), 1_000_000),
                denied(0, (B, 1, 0), 1_000_000, 1_000_000, V),
            ],
        );
    }
}

#[test]
fn a_bucket_recovers_from_its_horizon_when_the_clock_goes_back() {
    check(
        "bands: [ { capacity: 2, window: 1s } ]",
        &["10000000 2", "9900000", "0", "1597152"],
        &[
            allowed(10_000_000, (B, 2, 0), 1_000_000),
            denied(9_900_000, (B, 2, 0), 600_000, 1_100_000, V),
            // Full at 11 s is beyond the horizon, 2^21 µs, which is the first power of
            // two from twice the time to fill. It counts as full at the horizon.
            denied(0, (B, 2, 0), 1_597_152, 2_097_152, V),
            allowed(1_597_152, (B, 2, 0), 1_000_000),
        ],
    );
}

#[test]
fn a_window_stands_still_or_is_moved_back_when_the_clock_goes_back() {
    check(
        "algorithm: fixed_window, bands: [ { capacity: 1, window: 1s } ]",
        &["5200000", "4700000", "3000000", "4000000"],
        &[
            allowed(5_200_000, (B, 1, 0), 800_000),
            // As if it were 5 s, which is 0.3 s away.
            denied(4_700_000, (B, 1, 0), 1_300_000, 1_300_000, V),
            // More than a window ahead: its window becomes this one.
            denied(3_000_000, (B, 1, 0), 1_000_000, 1_000_000, V),
            allowed(4_000_000, (B, 1, 0), 1_000_000),
        ],
    );
}

#[test]
fn a_log_stands_still_or_is_moved_back_when_the_clock_goes_back() {
    check(
        "algorithm: sliding_log, bands: [ { capacity: 1, window: 1s } ]",
        &["5200000", "4700000", "3000000", "3999999", "4000000"],
        &[
            allowed(5_200_000, (B, 1, 0), 1_000_000),
            denied(4_700_000, (B, 1, 0), 1_500_000, 1_500_000, V),
            denied(3_000_000, (B, 1, 0), 1_000_000, 1_000_000, V),
            denied(3_999_999, (B, 1, 0), 1, 1, V),
            allowed(4_000_000, (B, 1, 0), 1_000_000),
        ],
    );
}

#[test]
fn a_full_bucket_is_not_evicted_so_the_clock_may_go_back() {
    check(
        "bands: [ { capacity: 1, window: 1s } ]",
        // A cost of 0 writes nothing, so the state is that of 10 s.
        &["10000000", "90000000000 0", "10500000"],
        &[
            allowed(10_000_000, (B, 1, 0), 1_000_000),
            allowed(90_000_000_000, (B, 1, 1), 0),
            denied(10_500_000, (B, 1, 0), 500_000, 500_000, V),
        ],
    );
}

#[test]
fn the_ends_of_the_domain_are_decided_exactly() {
    // 10^9 units in 366 days: a unit takes 31622.4 µs.
    let last = "253402300799999999";
    check(
        "bands: [ { capacity: 1000000000, window: 366d } ]",
        &[
            &format!("{last} 999999999"),
            last,
            last,
            &format!("{last} 1000000001"),
            &format!("{last} 99999999999999999999999"),
        ],
        &[
            allowed(
                253_402_300_799_999_999,
                (B, 1_000_000_000, 1),
                31_622_399_968_378,
            ),
            allowed(
                253_402_300_799_999_999,
                (B, 1_000_000_000, 0),
                31_622_400_000_000,
            ),
            denied(
                253_402_300_799_999_999,
                (B, 1_000_000_000, 0),
                31_623,
                31_622_400_000_000,
                V,
            ),
            denied(
                253_402_300_799_999_999,
                (B, 1_000_000_000, 0),
                None,
                31_622_400_000_000,
                V,
            ),
            denied(
                253_402_300_799_999_999,
                (B, 1_000_000_000, 0),
                None,
                31_622_400_000_000,
                V,
            ),
        ],
    );
}
