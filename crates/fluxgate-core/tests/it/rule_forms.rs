//! Faults of fields that can be written in several forms: bands, values to match, shares.

use fluxgate_core::RuleSets;

use crate::rules::{band_refused, rule, rule_refused};

#[test]
fn the_forms_of_a_band_exclude_each_other() {
    let refused = |band: &str, piece: &str| band_refused("token_bucket", band, piece);
    refused("§10", "`10` is not a rate; write 1 to 1000000000 units");
    refused("§0/s", "`0/s` is not a rate");
    refused("§\"\"", "`` is not a rate");
    refused("§~", "a band must be a mapping");
    refused("{ rate: §fast }", "`fast` is not a rate");
    refused("{ rate: §[10/s] }", "a list is not a rate");
    refused(
        "{ rate: 10/s, capacity: §5 }",
        "a band with a `rate` has no `capacity`",
    );
    refused(
        "{ rate: 10/s, window: §5s }",
        "a band with a `rate` has no `window`",
    );
    refused(
        "{ rate: 10/s, refill: §5 }",
        "a band with a `rate` has no `refill`",
    );
    refused(
        "{ rate: 10/s, calendar: §day }",
        "a band with a `rate` has no `calendar`",
    );
    refused(
        "{ rate: 10/s, burst: §0 }",
        "`burst` must be a whole number from 1",
    );
    refused(
        "{ capacity: 1, window: 1s, burst: §5 }",
        "`burst` belongs to a `rate`",
    );
    refused(
        "{ capacity: 1, window: 1s, time_zone: §UTC }",
        "`time_zone` belongs to a `calendar`",
    );
    refused(
        "{ capacity: 1, calendar: §day }",
        "`calendar` belongs to fixed_window only",
    );
    refused(
        "§{ rate: 1/366d, burst: 1000 }",
        "would take more than 3660 days",
    );
    let window = |band: &str, piece: &str| band_refused("fixed_window", band, piece);
    window(
        "{ rate: 10/s, burst: §20 }",
        "`burst` belongs to token_bucket and leaky_bucket only",
    );
    window(
        "{ capacity: 1, calendar: §decade }",
        "must be one of hour, day, week, month, year",
    );
    window(
        "{ capacity: 1, calendar: day, time_zone: §Mars/Base }",
        "`Mars/Base` is not a time zone",
    );
    window(
        "{ capacity: 1, calendar: day, time_zone: §asia/seoul }",
        "`asia/seoul` is not a time zone",
    );
    window(
        "{ capacity: 1, calendar: day, window: §1d }",
        "a band with a `calendar` has no `window`",
    );
    window("§{ calendar: day }", "a band needs a `capacity`");
    // The fault of an unknown algorithm is the only one.
    band_refused(
        "§fixed",
        "{ capacity: 1, calendar: day }",
        "`algorithm` must be one of",
    );
    band_refused(
        "sliding_log",
        "§100001/s",
        "`capacity` is 100001; allowed is 1 to 100000",
    );
}

#[test]
fn short_bands_are_named_by_their_position() {
    band_refused(
        "token_bucket",
        "{ id: b1, capacity: 1, window: 1s }, §5/m",
        "this rule already has a band `b1`",
    );
    let short = "bands: [ 1000/h, { id: x, rate: 5/15m }, { rate: 10/s, burst: 50 } ]";
    let long = "bands: [ { capacity: 1000, window: 1h }, { id: x, capacity: 5, window: 15m }, \
                { capacity: 50, window: 1s, refill: 10, period: 1s } ]";
    let sets = [short, long].map(|bands| {
        let rule = rule(&format!("{{ id: r, scope: global, {bands} }}"));
        RuleSets::from_yaml(&rule).unwrap()
    });
    assert_eq!(sets[0], sets[1]);
}

#[test]
fn values_to_match_have_one_form() {
    let headers = |headers: &str, piece: &str| {
        rule_refused(
            &format!("{{ id: r, scope: global, match: {{ headers: {headers} }}, BANDS }}"),
            piece,
        );
    };
    headers("{ X-A: §[] }", "must not be an empty list");
    headers(
        "{ X-A: [a, §[b]] }",
        "a header's value must be a text, not a list",
    );
    headers("{ X-A: §{} }", "one of `not`, `present`, `in` and `not_in`");
    headers(
        "{ X-A: §{ not: a, present: true } }",
        "one of `not`, `present`, `in` and `not_in`",
    );
    headers("{ X-A: { §is: a } }", "unknown field `is`");
    headers(
        "{ X-A: { not: §{ not: a } } }",
        "a header's value must be a text",
    );
    headers(
        "{ X-A: { present: §1 } }",
        "`present` must be true or false",
    );
    headers(
        "{ §\"a b\": { present: true } }",
        "cannot be the name of a header",
    );
    let part = |part: &str, piece: &str| {
        rule_refused(
            &format!("{{ id: r, scope: per_ip, match: {{ {part} }}, BANDS }}"),
            piece,
        );
    };
    part("ip: §[]", "`ip` must not be an empty list");
    part("ip: §10.0.0.0/8", "`ip` must be a list");
    part("not_ip: [10.0.0.0/8, §10.0.0.0/x]", "is not a network");
    part("attributes: { a: §[] }", "must not be an empty list");
}

#[test]
fn a_lease_has_a_share_and_a_span() {
    let lease = |lease: &str, piece: &str| {
        rule_refused(
            &format!("{{ id: r, scope: global, lease: {lease}, BANDS }}"),
            piece,
        );
    };
    for share in [
        "0%", "0.99%", "50.01%", "99%", "100%", "20", "12.345%", "-1%", "most", "[20%]",
    ] {
        lease(
            &format!("{{ share: §{share}, for: 1s }}"),
            "`share` must be from 1% to 50% with up to two decimals, such as 20%",
        );
    }
    for span in ["99ms", "0s", "61s", "2m", "1", "1.5s", "long", "{ s: 1 }"] {
        lease(
            &format!("{{ share: 20%, for: §{span} }}"),
            "`for` must be a whole number of milliseconds from 100ms to 1m",
        );
    }
    lease("{ share: 20%, for: §2m }", "such as 500ms or 1s, not 2m");
    lease("{ share: 20%, for: §[1s] }", "not a list");
    lease("§{ for: 1s }", "`lease` needs a `share`");
    lease("§{ share: 20%, for: ~ }", "`lease` needs a `for`");
    lease("§20%", "`lease` must be a mapping, not a single value");
    lease(
        "{ share: 20%, for: 1s, §time: 1s }",
        "unknown field `time` in `lease`; allowed are share, for",
    );
    lease(
        "{ share: 20%, for: 1s, §shares: 1% }",
        "unknown field `shares` in `lease`; did you mean `share`?",
    );
}

#[test]
fn a_rollout_is_a_share_of_identities() {
    for share in ["10", "101%", "1.005%", "-1%", "\"\"", "all"] {
        let rule = format!("{{ id: r, scope: per_user, rollout: §{share}, BANDS }}");
        rule_refused(&rule, "is not a share from 0% to 100%");
    }
    rule_refused(
        "{ id: r, scope: per_user, rollout: §[1%], BANDS }",
        "must be a text",
    );
    rule_refused(
        "{ id: r, scope: global, rollout: §10%, BANDS }",
        "a global rule has no identities",
    );
}
