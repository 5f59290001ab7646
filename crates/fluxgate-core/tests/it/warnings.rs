//! Warnings about rules.

use fluxgate_core::RuleSets;
use fluxgate_core::rules::RequestSource;

/// Returns a rule set of these rules.
fn rules(rules: &[&str]) -> RuleSets {
    let rules: Vec<_> = rules
        .iter()
        .map(|rule| format!("      - {{ {rule} }}\n"))
        .collect();
    let yaml = format!("rule_sets:\n  api:\n    rules:\n{}", rules.concat());
    RuleSets::from_yaml(&yaml).unwrap_or_else(|error| panic!("{yaml}\n{error}"))
}

fn warnings(written: &[&str]) -> Vec<String> {
    let sets = rules(written);
    let warnings = sets.only().unwrap().warnings();
    warnings.iter().map(ToString::to_string).collect()
}

/// Returns whether the second of two rules of a group never applies.
fn is_shadowed(first: &str, second: &str) -> bool {
    let [first, second] = [("first", first), ("second", second)].map(|(id, fields)| {
        let scope = match fields.contains("scope:") {
            true => "",
            false => "scope: per_user, ",
        };
        format!("id: {id}, group: g, {scope}{fields} bands: [ 1/s ]")
    });
    match &warnings(&[&first, &second])[..] {
        [] => false,
        [warning] => {
            assert_eq!(
                warning,
                "api.rules[1]: rule `second` never applies: rule `first`, which is earlier in group \
                 `g`, matches every request that it matches"
            );
            true
        }
        more => panic!("{more:?}"),
    }
}

#[test]
fn slots_that_no_request_can_take_are_reported() {
    let slots = "id: r, scope: per_user, algorithm: concurrency, bands: [ { capacity: 2 } ]";
    assert_eq!(
        warnings(&[&format!("{slots}, cost: 3")]),
        [
            "api.rules[0].cost: the cost 3 is above the capacity 2 of band `b0`: every request is \
             denied"
        ]
    );
    for rule in [
        &format!("{slots}, cost: 2"),
        &format!("{slots}, cost: 3, mode: shadow"),
        // Denies all requests that it matches, as recipes do.
        "id: r, scope: global, cost: 2, bands: [ 1/s ]",
    ] {
        assert_eq!(warnings(&[rule]), [""; 0], "{rule}");
    }
}

#[test]
fn a_rule_after_a_wider_one_of_its_group_never_applies() {
    for (first, second) in [
        ("", ""),
        ("", "match: { path: [/a], methods: [GET] },"),
        (
            "match: { path: [/api/**] },",
            "match: { path: [/api/v1/*, /api] },",
        ),
        (
            "match: { path: [/a, /b] },",
            "match: { path: [/b], headers: { x: y } },",
        ),
        (
            "match: { methods: [GET, PUT] },",
            "match: { methods: [PUT] },",
        ),
        (
            "match: { attributes: { plan: [free, trial] } },",
            "match: { attributes: { plan: trial, tenant: t } },",
        ),
        (
            "match: { headers: { X-A: { present: true } } },",
            "match: { headers: { x-a: b } },",
        ),
        (
            "match: { headers: { x: { not: [a] } } },",
            "match: { headers: { x: { not: [a, b] } } },",
        ),
        (
            "match: { headers: { x: { not: [a] } } },",
            "match: { headers: { x: [b, c] } },",
        ),
        (
            "match: { ip: [10.0.0.0/8] },",
            "match: { ip: [10.1.0.0/16, 10.2.3.4] },",
        ),
        (
            "match: { not_ip: [10.1.2.3] },",
            "match: { not_ip: [10.0.0.0/8] },",
        ),
        (
            "match: { not_path: [/a] },",
            "match: { not_path: [/a, /b] },",
        ),
        ("scope: global,", "scope: per_ip,"),
        ("on_missing_key: skip,", "on_missing_key: skip,"),
        ("mode: shadow,", "mode: shadow, match: { path: [/a] },"),
    ] {
        assert!(is_shadowed(first, second), "{first} / {second}");
    }
}

#[test]
fn a_rule_that_may_apply_is_not_reported() {
    for (first, second) in [
        ("match: { path: [/a] },", ""),
        ("match: { path: [/api/**] },", "match: { path: [/apis] },"),
        (
            "match: { path: [/api/v1/**] },",
            "match: { path: [/api/**] },",
        ),
        // A request without a path matches the second only.
        ("match: { path: [/**] },", ""),
        (
            "match: { methods: [GET] },",
            "match: { methods: [GET, PUT] },",
        ),
        (
            "match: { attributes: { plan: free } },",
            "match: { attributes: { plan: [free, trial] } },",
        ),
        (
            "match: { attributes: { a: b } },",
            "match: { headers: { a: b } },",
        ),
        (
            "match: { attributes: { A: b } },",
            "match: { attributes: { a: b } },",
        ),
        (
            "match: { headers: { x: { present: true } } },",
            "match: { headers: { x: { not: [a] } } },",
        ),
        (
            "match: { headers: { x: { not: [a, b] } } },",
            "match: { headers: { x: { not: [a] } } },",
        ),
        (
            "match: { headers: { x: { not: [a] } } },",
            "match: { headers: { x: [a, b] } },",
        ),
        (
            "match: { ip: [10.1.0.0/16] },",
            "match: { ip: [10.0.0.0/8] },",
        ),
        // A request without an address matches the second only.
        ("match: { ip: [0.0.0.0/0, '::/0'] },", ""),
        (
            "match: { not_ip: [10.0.0.0/8] },",
            "match: { not_ip: [10.1.2.3] },",
        ),
        ("match: { not_path: [/a] },", "match: { not_path: [/b] },"),
        ("on_missing_key: skip,", ""),
        // A descriptor of Envoy may have an address and no user.
        ("scope: per_user,", "scope: per_ip,"),
        ("mode: shadow,", ""),
        ("rollout: 10%,", ""),
        ("", "rollout: 10%,"),
        ("enabled: false,", ""),
        ("priority: 200,", "match: { path: [/a] },"),
    ] {
        assert!(!is_shadowed(first, second), "{first} / {second}");
    }
    let other_group = [
        "id: a, group: g, scope: global, bands: [ 1/s ]",
        "id: b, scope: global, bands: [ 1/s ]",
    ];
    assert_eq!(warnings(&other_group), [""; 0]);
}

#[test]
fn a_lower_priority_number_is_earlier() {
    let found = warnings(&[
        "id: narrow, group: g, scope: per_user, match: { path: [/a] }, bands: [ 1/s ]",
        "id: all, group: g, scope: per_user, priority: 1, bands: [ 1/s ]",
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("api.rules[0]: rule `narrow` never applies"),
        "{found:?}"
    );
}

#[test]
fn a_standard_method_in_the_wrong_case_is_reported() {
    let rule =
        "id: r, scope: global, match: { methods: [GET, post, Patch, purge] }, bands: [ 1/s ]";
    assert_eq!(
        warnings(&[rule]),
        [
            "api.rules[0].match.methods[1]: method `post` does not match `POST`: methods are \
             case-sensitive",
            "api.rules[0].match.methods[2]: method `Patch` does not match `PATCH`: methods are \
             case-sensitive",
        ]
    );
}

#[test]
fn a_rollout_of_a_shadow_rule_has_no_effect() {
    let found = warnings(&["id: r, scope: per_user, mode: shadow, rollout: 5%, bands: [ 1/s ]"]);
    assert_eq!(
        found,
        ["api.rules[0].rollout: `rollout` has no effect on a rule with `mode: shadow`"]
    );
}

/// Returns the warnings about a rule that leases 20% of its bands.
fn lease_warnings(fields: &str) -> Vec<String> {
    let lease = "lease: { share: 20%, for: 1s }";
    warnings(&[&format!("id: r, scope: per_user, {lease}, {fields}")])
}

#[test]
fn a_lease_of_a_rule_that_is_decided_call_by_call_has_no_effect() {
    for (fields, setting) in [
        ("mode: shadow, bands: [ 1000/s ]", "mode: shadow"),
        ("on_exceed: wait, bands: [ 1000/s ]", "on_exceed: wait"),
        (
            "on_exceed: wait, algorithm: fixed_window, bands: [ 1000/s ]",
            "on_exceed: wait",
        ),
        (
            "algorithm: leaky_bucket, shape: true, bands: [ 1000/s ]",
            "shape: true",
        ),
        (
            "algorithm: sliding_log, bands: [ 1000/s ]",
            "algorithm: sliding_log",
        ),
        (
            "algorithm: sliding_window, bands: [ 1000/s, 1/h ]",
            "algorithm: sliding_window",
        ),
        (
            "algorithm: concurrency, bands: [ { capacity: 1000 } ]",
            "algorithm: concurrency",
        ),
        (
            "mode: shadow, on_exceed: wait, cost: 900, bands: [ 1/s ]",
            "mode: shadow",
        ),
    ] {
        assert_eq!(
            lease_warnings(fields),
            [format!(
                "api.rules[0].lease: `lease` has no effect on a rule with `{setting}`"
            )],
            "once"
        );
    }
    for algorithm in ["token_bucket", "leaky_bucket", "fixed_window"] {
        let fields = format!("algorithm: {algorithm}, cost: 2, bands: [ 1000/s ]");
        assert_eq!(lease_warnings(&fields), [""; 0]);
    }
}

#[test]
fn a_lease_of_fewer_than_two_units_has_no_effect() {
    assert_eq!(
        lease_warnings(
            "bands: [ 9/s, 10/s ], overrides: [ { identity: a, bands: [ { id: few, capacity: 4, \
             window: 1s } ] } ]"
        ),
        [
            "api.rules[0].bands[0]: `lease` has no effect: 20% of the capacity 9 of band `b0` is 1, \
             and a lease needs at least 2 units of every band",
            "api.rules[0].overrides[0].bands[0]: `lease` has no effect: 20% of the capacity 4 of \
             band `few` is 0, and a lease needs at least 2 units of every band",
            "api.rules[0].bands[1]: band `b1` has no effect: it allows everything that band `b0` \
             allows",
        ]
    );
}

#[test]
fn a_cost_that_a_leased_bucket_never_admits_is_reported() {
    for algorithm in ["token_bucket", "leaky_bucket"] {
        let rule = |cost| {
            lease_warnings(&format!(
                "algorithm: {algorithm}, cost: {cost}, bands: [ {{ id: burst, capacity: 1000, \
                 window: 1m }} ], overrides: [ {{ identity: a, bands: [ 1001/s ] }} ]"
            ))
        };
        assert_eq!(rule("800"), [""; 0]);
        let of_rule = "api.rules[0].bands[0]: the cost 801 never passes band `burst`: with 20% of \
                       its capacity 1000 for leases, a request may cost at most 800";
        assert_eq!(rule("801"), [of_rule]);
        assert_eq!(
            rule("1000")[1],
            "api.rules[0].overrides[0].bands[0]: the cost 1000 never passes band `b0`: with 20% of \
             its capacity 1001 for leases, a request may cost at most 801"
        );
        assert_eq!(rule("1002"), [""; 0], "it would not pass without the lease");
        assert_eq!(rule("\"attr:units\""), [""; 0]);
    }
    let window = "algorithm: fixed_window, cost: 1000, bands: [ 1000/s ]";
    assert_eq!(lease_warnings(window), [""; 0], "nothing is split");
}

/// Returns the bands that have no effect, by position.
fn pointless(algorithm: &str, bands: &str) -> Vec<String> {
    let rule = format!("id: r, scope: per_user, algorithm: {algorithm}, bands: [ {bands} ]");
    let found = warnings(&[&rule]);
    let places = found.iter().map(|warning| {
        let (place, message) = warning.split_once(": ").unwrap();
        assert!(
            message.contains("has no effect: it allows everything that band"),
            "{message}"
        );
        place.trim_start_matches("api.rules[0].").to_owned()
    });
    places.collect()
}

#[test]
fn a_band_that_allows_what_another_allows_is_reported() {
    for (algorithm, bands, expected) in [
        ("token_bucket", "10/s, 600/m", "bands[1]"),
        ("token_bucket", "600/m, 10/s", "bands[0]"),
        ("token_bucket", "10/s, 10/s", "bands[1]"),
        (
            "leaky_bucket",
            "{ rate: 1/s, burst: 5 }, { rate: 2/s, burst: 5 }",
            "bands[1]",
        ),
        ("fixed_window", "10/m, 10/s", "bands[1]"),
        ("fixed_window", "10/s, 600/m", "bands[1]"),
        // Ten seconds meet at most three windows of seven.
        ("fixed_window", "10/7s, 30/10s", "bands[1]"),
        ("sliding_log", "10/s, 20/1500ms", "bands[1]"),
        ("sliding_log", "10/m, 10/s", "bands[1]"),
        ("sliding_window", "10/m, 11/m", "bands[1]"),
        ("sliding_window", "10/m, 9/m, 100/h", "bands[0]"),
        (
            "fixed_window",
            "{ capacity: 9, calendar: month }, { capacity: 9, calendar: day }",
            "bands[1]",
        ),
        (
            "fixed_window",
            "{ capacity: 9, calendar: day }, { capacity: 63, calendar: week }",
            "bands[1]",
        ),
    ] {
        assert_eq!(
            pointless(algorithm, bands),
            [expected],
            "{algorithm} {bands}"
        );
    }
    let with_override = "id: r, scope: per_user, bands: [ 1/s ], \
                         overrides: [ { identity: ann, bands: [ 10/s, 600/m ] } ]";
    let found = warnings(&[with_override]);
    assert!(
        found[0].starts_with("api.rules[0].overrides[0].bands[1]: "),
        "{found:?}"
    );
}

/// Of 4,000 bands, each is compared with the first 250.
#[test]
fn the_number_of_compared_bands_is_bounded() {
    // Each is larger than the one before it, and slower.
    let mut bands: Vec<_> = (1..4000)
        .map(|index| format!("{}/{index}s", 1000 + index))
        .collect();
    bands.extend(["1003/3s".into(), "1300/300s".into()]);
    let rule = format!("id: r, scope: global, bands: [ {} ]", bands.join(", "));
    assert_eq!(
        warnings(&[&rule]),
        [
            "api.rules[0].bands[3999]: band `b3999` has no effect: it allows everything that band \
             `b2` allows"
        ]
    );
}

#[test]
fn a_band_that_may_deny_is_not_reported() {
    for (algorithm, bands) in [
        ("token_bucket", "10/s, 599/m"),
        ("token_bucket", "10/s, 100/m, 1000/h"),
        (
            "token_bucket",
            "{ rate: 1/s, burst: 5 }, { rate: 2/s, burst: 4 }",
        ),
        ("fixed_window", "10/m, 9/s"),
        ("fixed_window", "10/s, 599/m"),
        ("fixed_window", "10/7s, 29/10s"),
        ("sliding_log", "10/s, 19/1500ms"),
        ("sliding_log", "10/m, 9/s"),
        ("sliding_window", "10/m, 10/s"),
        (
            "fixed_window",
            "{ capacity: 9, calendar: day }, { capacity: 62, calendar: week }",
        ),
        (
            "fixed_window",
            "{ capacity: 9, calendar: week }, { capacity: 9000, calendar: month }",
        ),
        ("fixed_window", "{ capacity: 9, calendar: day }, 9/1d"),
        (
            "fixed_window",
            "{ capacity: 9, calendar: month }, { capacity: 9, calendar: day, time_zone: Asia/Seoul }",
        ),
    ] {
        assert_eq!(pointless(algorithm, bands), [""; 0], "{algorithm} {bands}");
    }
}

fn warnings_of_filter(written: &[&str], attributes: &[&str], include: &[&str]) -> Vec<String> {
    let texts = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let sets = rules(written);
    let found = sets.only().unwrap().warnings_for(&RequestSource {
        name: "filter `main`",
        attributes: &texts(attributes),
        include: &texts(include),
    });
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn a_rule_needs_attributes_that_requests_have() {
    let rules = [
        "id: pro, scope: per_user, match: { attributes: { plan: pro } }, bands: [ 1/s ]",
        "id: any, scope: per_user, match: { attributes: { plan: { present: true } } }, bands: [ 1/s ]",
        "id: free, scope: per_user, match: { attributes: { plan: { not: pro } } }, bands: [ 1/s ]",
        "id: skips, key: [ip, \"attr:tenant\"], on_missing_key: skip, bands: [ 1/s ]",
        "id: denies, key: [\"attr:tenant\"], on_missing_key: deny, bands: [ 1/s ]",
        "id: by-ip, key: [\"attr:tenant\"], bands: [ 1/s ]",
        "id: off, enabled: false, scope: per_user, match: { attributes: { plan: pro } }, bands: [ 1/s ]",
    ];
    let found = warnings_of_filter(&rules, &[], &["/**"]);
    let lack = |name: &str| format!("requests of filter `main` have no attribute `{name}`");
    assert_eq!(
        found,
        [
            format!(
                r#"api.rules[0].match.attributes["plan"]: rule `pro` never matches: {}"#,
                lack("plan")
            ),
            format!(
                r#"api.rules[1].match.attributes["plan"]: rule `any` never matches: {}"#,
                lack("plan")
            ),
            format!(
                "api.rules[3].key[1]: rule `skips` never matches: {}",
                lack("tenant")
            ),
            format!(
                "api.rules[4].key[0]: rule `denies` denies every request that it matches: {}",
                lack("tenant")
            ),
        ]
    );
    assert_eq!(
        warnings_of_filter(&rules, &["plan", "tenant"], &["/**"]),
        [""; 0]
    );
}

#[test]
fn a_rule_needs_paths_that_requests_have() {
    let rules =
        ["id: r, scope: per_user, match: { path: [/api/v1/x, /api/v2/**] }, bands: [ 1/s ]"];
    for never in [&["/web/**"][..], &["/health", "/api/v1/y"]] {
        let found = warnings_of_filter(&rules, &[], never);
        let expected = "api.rules[0].match.path: rule `r` never matches: filter `main` includes \
                        none of its paths";
        assert_eq!(found, [expected], "{never:?}");
    }
    for perhaps in [
        &["/**"][..],
        &["/api/**"],
        &["/*/v3"],
        &["/api"],
        &["/api/v2"],
        &["/ap%69/x"],
        &["/api/v*"],
        // `/` has no segment to compare.
        &["/api/v3/**", "/"],
    ] {
        let found = warnings_of_filter(&rules, &[], perhaps);
        assert_eq!(found, [""; 0], "{perhaps:?}");
    }
}

/// Filters replace the missing parts of keys.
#[test]
fn a_rule_with_another_key_never_applies_to_requests_of_a_filter() {
    let rules = [
        "id: users, group: g, scope: per_user, bands: [ 1/s ]",
        "id: addresses, group: g, scope: per_ip, bands: [ 1/s ]",
    ];
    assert_eq!(warnings(&rules), [""; 0]);
    let found = warnings_of_filter(&rules, &[], &["/**"]);
    assert_eq!(found.len(), 1, "{found:?}");
    let expected = "api.rules[1]: rule `addresses` never applies to requests of filter `main`: ";
    assert!(found[0].starts_with(expected), "{found:?}");
}

#[test]
fn a_log_must_fit_into_the_store() {
    let sets = rules(&[
        "id: r, scope: per_user, algorithm: sliding_log, bands: [ 100/s, 101/m ]",
        "id: s, scope: per_user, bands: [ 1000/s ]",
    ]);
    let found = sets.only().unwrap().warnings_for_log_events(100);
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "api.rules[0].bands[1]: a log of band `b1` may have 101 events, but the store holds at \
             most 100 of all logs together"
        ]
    );
}
