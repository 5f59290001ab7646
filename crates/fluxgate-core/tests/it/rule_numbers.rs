//! Numbers, durations, patterns and overrides that a rule file must not contain.

use fluxgate_core::RuleSets;

use crate::rules::{band_refused, rule_refused};
use crate::support::{NAMES, global, parse, set_of};

#[test]
fn counts_outside_the_domain_are_rejected() {
    for count in [
        "0",
        "-1",
        "1000000001",
        "1.5",
        "1e3",
        "\"10\"",
        "ten",
        "99999999999999999999",
        "[1]",
        "0x10",
        "+1",
        "1_000",
    ] {
        let band = format!("{{ capacity: §{count}, window: 1s }}");
        band_refused(
            "token_bucket",
            &band,
            "`capacity` must be a whole number from 1 to 1000000000",
        );
        let band = format!("{{ capacity: 1, window: 1s, refill: §{count} }}");
        band_refused(
            "leaky_bucket",
            &band,
            "`refill` must be a whole number from 1 to 1000000000",
        );
    }
    band_refused(
        "sliding_log",
        "{ capacity: §100001, window: 1s }",
        "allowed is 1 to 100000",
    );
    for (algorithm, most) in NAMES.map(|name| {
        (
            name,
            if name == "sliding_log" {
                100_000
            } else {
                1_000_000_000
            },
        )
    }) {
        parse(&global(&format!(
            "algorithm: {algorithm}, bands: [{{ capacity: {most}, window: 1ms }}]"
        )));
    }
}

#[test]
fn durations_outside_the_domain_are_rejected() {
    for span in [
        "0s",
        "0ms",
        "367d",
        "8785h",
        "31622400001ms",
        "1",
        "1.5s",
        "-1s",
        "\"1 s\"",
        "\" 1s\"",
        "1S",
        "1w",
        "1us",
        "1m30s",
        "s",
        "\"\"",
        "99999999999999999999s",
        "18446744073709551615d",
        "[1s]",
        "one",
        "1M",
    ] {
        band_refused(
            "token_bucket",
            &format!("{{ capacity: 1, window: §{span} }}"),
            "`window` must be a whole number with a unit",
        );
        band_refused(
            "token_bucket",
            &format!("{{ capacity: 1, window: 1s, period: §{span} }}"),
            "`period` must be a whole number",
        );
        rule_refused(
            &format!("{{ id: r, scope: global, on_exceed: wait, max_wait: §{span}, BANDS }}"),
            "`max_wait` must be a whole number",
        );
    }
    for span in [
        "1ms", "500ms", "1s", "90s", "5m", "1h", "1d", "30d", "366d", "8784h",
    ] {
        parse(&global(&format!(
            "on_exceed: wait, max_wait: {span}, bands: [{{ capacity: 1, window: {span}, period: {span} }}]"
        )));
    }
}

#[test]
fn a_bucket_must_fill_within_ten_years_of_366_days() {
    let slow = "filling from empty";
    band_refused(
        "token_bucket",
        "§{ capacity: 1000000000, window: 1s, refill: 1 }",
        slow,
    );
    band_refused(
        "token_bucket",
        "§{ capacity: 11, window: 366d, refill: 1 }",
        slow,
    );
    band_refused(
        "leaky_bucket",
        "§{ capacity: 3661, window: 1d, refill: 1 }",
        slow,
    );
    // By a millisecond: 3660 days are 316,224,000,000 ms.
    band_refused(
        "leaky_bucket",
        "§{ capacity: 316224001, window: 1s, refill: 1 }",
        slow,
    );
    for band in [
        "{ capacity: 316224000, window: 1s, refill: 1 }",
        "{ capacity: 10, window: 366d, refill: 1 }",
        "{ capacity: 1000000000, window: 366d }",
    ] {
        parse(&global(&format!("bands: [{band}]")));
    }
}

#[test]
fn a_refill_belongs_to_buckets_only() {
    for algorithm in ["fixed_window", "sliding_log", "sliding_window"] {
        band_refused(
            algorithm,
            "{ capacity: 1, window: 1s, refill: §1 }",
            "`refill` belongs to token_bucket and leaky_bucket",
        );
        band_refused(
            algorithm,
            "{ capacity: 1, window: 1s, period: §1s }",
            "`period` belongs to token_bucket and leaky_bucket",
        );
    }
    for algorithm in ["token_bucket", "leaky_bucket", "gcra"] {
        parse(&global(&format!(
            "algorithm: {algorithm}, bands: [{{ capacity: 1, window: 1s, refill: 3, period: 7s }}]"
        )));
    }
}

#[test]
fn a_shape_belongs_to_the_leaky_bucket_and_does_not_wait() {
    for algorithm in NAMES.into_iter().filter(|name| *name != "leaky_bucket") {
        let body =
            format!("{{ id: r, scope: global, algorithm: {algorithm}, shape: §true, BANDS }}");
        rule_refused(&body, "`shape: true` belongs to leaky_bucket only");
    }
    rule_refused(
        "{ id: r, scope: global, algorithm: leaky_bucket, shape: §true, on_exceed: wait, BANDS }",
        "cannot be combined with `on_exceed: wait`",
    );
    parse(&global(
        "algorithm: leaky_bucket, shape: true, bands: [{ capacity: 1, window: 1s }]",
    ));
}

#[test]
fn a_cost_is_at_least_one() {
    for cost in [
        "0",
        "-1",
        "1.5",
        "\"1\"",
        "free",
        "[1]",
        "+1",
        "1000000001",
        "\"attr:\"",
    ] {
        rule_refused(
            &format!("{{ id: r, scope: global, cost: §{cost}, BANDS }}"),
            "`cost` must be a whole number from 1",
        );
    }
    rule_refused(
        "{ id: r, scope: global, cost: §\"header:a b\", BANDS }",
        "cannot be the name of a header",
    );
    for cost in ["1", "1000000000", "\"header:X-Cost\"", "\"attr:tokens\""] {
        parse(&global(&format!(
            "cost: {cost}, bands: [{{ capacity: 1, window: 1s }}]"
        )));
    }
}

#[test]
fn patterns_begin_with_a_slash_and_keep_double_stars_apart() {
    for field in ["path", "not_path"] {
        for (pattern, piece) in [
            ("api/**", "must begin with `/`"),
            ("", "must begin with `/`"),
            ("**", "must begin with `/`"),
            ("*", "must begin with `/`"),
            ("/a**", "must be a whole segment"),
            ("/**b", "must be a whole segment"),
            ("/a/***", "must be a whole segment"),
            ("/a/x**y/b", "must be a whole segment"),
            ("/users/{id}x", "`{id}x` is not one: write `*`"),
            ("/users/v{id}", "write `*`"),
            ("/users/{}", "write `*`"),
            ("/users/{id", "write `*`"),
            ("/users/id}", "write `*`"),
            ("/users/{{id}}", "write `*`"),
            ("/users/{id:[0-9]+}", "write `*`"),
            ("/users/{*rest}", "write `*`"),
            ("/users/{a?}", "write `*`"),
        ] {
            let body = format!(
                "{{ id: r, scope: global, match: {{ {field}: [\"/fine\", §\"{pattern}\"] }}, BANDS }}"
            );
            rule_refused(&body, piece);
        }
    }
    for pattern in [
        "/",
        "/**",
        "/a/**/b",
        "/*/?",
        "/a*b*/",
        "/**/**",
        "/{id}/{user-id}/{a.b_c}",
    ] {
        parse(&global(&format!(
            "match: {{ path: [\"{pattern}\"] }}, bands: [{{ capacity: 1, window: 1s }}]"
        )));
    }
}

#[test]
fn overrides_must_name_an_identity_once() {
    let one = |scope: &str, overrides: &str| {
        format!("{{ id: r, {scope}, BANDS, overrides: [{overrides}] }}")
    };
    rule_refused(
        &one("scope: global", "{ identity: §u, BANDS }"),
        "a global rule has no identities",
    );
    rule_refused(
        &one("scope: per_user", "{ identity: §[u, v], BANDS }"),
        "1 part(s), the identity 2 value(s)",
    );
    rule_refused(
        &one("key: [ip, user]", "{ identity: §u, BANDS }"),
        "2 part(s), the identity 1 value(s)",
    );
    rule_refused(
        &one("key: [ip, user]", "{ identity: §[user, u], BANDS }"),
        "`user` is not an IP address",
    );
    rule_refused(
        &one("scope: per_ip", "{ identity: §\"10.0.0\", BANDS }"),
        "is not an IP address",
    );
    rule_refused(
        &one("scope: per_user", "{ identity: §\"\", BANDS }"),
        "must not be empty",
    );
    let twice = "there is an override for this identity already";
    let pairs = [
        ("per_user", "u", "u"),
        ("per_ip", "10.0.0.1", "10.0.0.1"),
        // The same client: an IPv4-mapped address counts as IPv4, an IPv6 one by its /64.
        ("per_ip", "10.0.0.1", "::ffff:10.0.0.1"),
        ("per_ip", "2001:db8::1", "2001:db8::ffff"),
        ("per_ip", "2001:db8::1", "2001:0db8:0::1"),
    ];
    for (scope, first, second) in pairs {
        let overrides =
            format!("{{ identity: \"{first}\", BANDS }}, {{ identity: §\"{second}\", BANDS }}");
        rule_refused(&one(&format!("scope: {scope}"), &overrides), twice);
    }
    rule_refused(
        &one(
            "key: [user, \"attr:a\"]",
            "{ identity: [u, a], BANDS }, { identity: §[u, a], BANDS }",
        ),
        twice,
    );
    // With another prefix they are two.
    let apart = set_of(
        "{ id: r, scope: per_ip, bands: [{ capacity: 1, window: 1s }], overrides: [
            { identity: \"2001:db8::1\", bands: [{ capacity: 2, window: 1s }] },
            { identity: \"2001:db8::ffff\", bands: [{ capacity: 3, window: 1s }] }] }",
    );
    assert!(RuleSets::from_yaml(&apart).is_err());
    parse(&format!("{{ keys: {{ ipv6_prefix: 128 }}, {apart} }}"));
}

#[test]
fn the_bands_of_an_override_are_validated_too() {
    rule_refused(
        "{ id: r, scope: per_user, algorithm: sliding_log, BANDS, overrides: [{ identity: u, bands: [{ capacity: §100001, window: 1s }] }] }",
        "allowed is 1 to 100000",
    );
    rule_refused(
        "{ id: r, scope: per_user, BANDS, overrides: [{ identity: u, bands: [{ capacity: 1, window: 1s }, { id: §b0, capacity: 1, window: 1s }] }] }",
        "already has a band `b0`",
    );
}

#[test]
fn an_ipv6_prefix_has_1_to_128_bits() {
    for prefix in ["0", "129", "-1", "\"64\"", "/64"] {
        let text = format!("keys: {{ ipv6_prefix: {prefix} }}\nrule_sets: {{}}");
        let error = RuleSets::from_yaml(&text).unwrap_err();
        assert_eq!(error.0[0].position.column, 22, "{error}");
        assert!(error.0[0].message.contains("from 1 to 128"), "{error}");
    }
}
