//! Keys: identities that must not collide, and missing parts.

use std::collections::HashSet;
use std::net::IpAddr;

use fluxgate_core::path::RequestPath;
use fluxgate_core::task::ready;
use fluxgate_core::{Decision, RequestContext, RequestContextBuilder};
use proptest::prelude::*;

use crate::support::{Gate, cases, fields, retry, set_of, violated};

/// A rule with this key that lets every identity pass once.
fn once(key: &str) -> Gate {
    Gate::new(&set_of(&format!(
        "{{ id: r, {key}, bands: [{{ capacity: 1, window: 1h }}] }}"
    )))
}

fn request<'a>() -> RequestContextBuilder<'a> {
    RequestContext::builder()
}

fn from(ip: &str) -> RequestContext<'_> {
    request().ip(ip.parse::<IpAddr>().unwrap()).build()
}

/// Checks that all of these are different: each passes exactly once.
#[track_caller]
fn all_differ(gate: &Gate, requests: &[RequestContext<'_>]) {
    for request in requests {
        assert!(gate.check(request).allowed(), "{request:?} met another");
    }
    for request in requests {
        assert!(!gate.check(request).allowed(), "{request:?} is not counted");
    }
}

#[test]
fn a_user_is_not_an_address() {
    let gate = once("scope: per_user");
    let ip = [1, 2, 3, 4];
    all_differ(
        &gate,
        &[
            request().user("1.2.3.4").build(),
            request().ip(ip).build(),
            request().build(),
            request().user("anonymous").build(),
            request().user("-").build(),
            request().user("\u{1}\u{2}\u{3}\u{4}").build(),
        ],
    );
}

#[test]
fn parts_of_a_key_do_not_run_together() {
    let pair = |a, b| request().attribute("a", a).attribute("b", b).build();
    all_differ(
        &once("key: [\"attr:a\", \"attr:b\"], on_missing_key: anonymous"),
        &[
            pair("a:b", "c"),
            pair("a", "b:c"),
            pair("a", "bc"),
            pair("ab", "c"),
            pair("", "abc"),
            pair("abc", ""),
            pair("", ""),
            pair("c", "a:b"),
        ],
    );
}

#[test]
fn rules_sets_and_bands_with_similar_names_do_not_collide() {
    let band = "bands: [{ capacity: 1, window: 1h }]";
    let rules = format!(
        "rule_sets: {{ a: {{ rules: [{{ id: bc, scope: per_user, {band} }}] }},
                       ab: {{ rules: [{{ id: c, scope: per_user, {band} }}, {{ id: c1, scope: per_user, {band} }}] }} }}"
    );
    let gate = Gate::new(&rules);
    let check = |set, user| ready(gate.limiter.check(set, &request().user(user).build()));
    assert!(check("a", "u").allowed());
    assert!(check("ab", "u").allowed());
    assert!(check("ab", "1u").allowed());
    assert_eq!(gate.keys(), 5);
    assert!(!check("a", "u").allowed());
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn no_two_composite_identities_collide(
        pairs in prop::collection::vec(("[ab:/\u{0}\u{1}4-]{0,4}", "[ab:/\u{0}\u{1}4-]{0,4}"), 1..60)
    ) {
        let gate = once("key: [user, \"header:X-T\"], on_missing_key: anonymous");
        let mut known = HashSet::new();
        for (user, tenant) in &pairs {
            let context = request().user(user.as_str()).header("x-t", tenant.as_str()).build();
            let is_new = known.insert((user, tenant));
            prop_assert_eq!(gate.check(&context).allowed(), is_new, "{:?} {:?}", user, tenant);
        }
    }
}

#[test]
fn every_part_is_counted_by_its_kind() {
    let context = || {
        request()
            .user("x")
            .api_key("x")
            .method("x")
            .path("x")
            .header("x", "x")
            .attribute("x", "x")
    };
    for part in [
        "user",
        "api_key",
        "method",
        "path",
        "\"header:x\"",
        "\"header:X\"",
        "\"attr:x\"",
    ] {
        let gate = once(&format!("key: [{part}]"));
        assert!(gate.check(&context().build()).allowed(), "{part}");
        assert!(
            !gate.check(&context().ip([9, 9, 9, 9]).build()).allowed(),
            "{part}"
        );
        let others = request()
            .user("y")
            .api_key("y")
            .method("y")
            .path("y")
            .header("x", "y")
            .attribute("x", "y");
        assert!(gate.check(&others.build()).allowed(), "{part}");
    }
    // Of two headers with one name the first counts.
    let gate = once("key: [\"header:x\"]");
    assert!(
        gate.check(&request().header("X", "1").header("x", "2").build())
            .allowed()
    );
    assert!(!gate.check(&request().header("x", "1").build()).allowed());
}

#[test]
fn an_ipv6_address_counts_as_its_64() {
    let gate = once("scope: per_ip");
    assert!(gate.check(&from("2001:db8:1:2::1")).allowed());
    assert!(
        !gate
            .check(&from("2001:db8:1:2:ffff:ffff:ffff:ffff"))
            .allowed()
    );
    assert!(gate.check(&from("2001:db8:1:3::1")).allowed());
}

#[test]
fn the_prefix_of_ipv6_can_be_set() {
    for (prefix, near, far) in [
        (128, "2001:db8::1", "2001:db8::2"),
        (127, "2001:db8::2", "2001:db8::1"),
        (56, "2001:db8:0:ff::", "2001:db8:0:100::"),
        (48, "2001:db8:0:ffff::", "2001:db8:1::"),
        (1, "7fff::", "8000::"),
    ] {
        let rules = set_of("{ id: r, scope: per_ip, bands: [{ capacity: 1, window: 1h }] }");
        let gate = Gate::new(&format!("{{ keys: {{ ipv6_prefix: {prefix} }}, {rules} }}"));
        let first = if prefix == 127 {
            "2001:db8::3"
        } else {
            "2001:db8::1"
        };
        assert!(gate.check(&from(first)).allowed(), "/{prefix}");
        assert!(!gate.check(&from(near)).allowed(), "/{prefix}");
        assert!(gate.check(&from(far)).allowed(), "/{prefix}");
        // An IPv4 address always counts as a whole.
        assert!(gate.check(&from("10.0.0.1")).allowed());
        assert!(gate.check(&from("10.0.0.2")).allowed());
    }
}

#[test]
fn a_mapped_address_counts_as_ipv4() {
    let gate = once("scope: per_ip");
    assert!(gate.check(&from("::ffff:10.0.0.1")).allowed());
    assert!(!gate.check(&from("10.0.0.1")).allowed());
    assert!(gate.check(&from("::ffff:10.0.0.2")).allowed());
    assert_eq!(gate.left(&["::ffff:10.0.0.1"]), [0]);
}

#[test]
fn the_address_replaces_a_missing_part() {
    let gate = once("key: [user, \"attr:t\"]");
    let ip = |last| request().ip([10, 0, 0, last]);
    all_differ(
        &gate,
        &[
            ip(1).attribute("t", "x").build(),
            ip(2).attribute("t", "x").build(),
            ip(1).attribute("t", "y").build(),
            ip(1).user("u").build(),
            ip(1).build(),
            // Without an address either: anonymous, for that part only.
            request().attribute("t", "x").build(),
            request().user("u").build(),
            request().build(),
        ],
    );
    // Empty counts as missing.
    assert!(
        !gate
            .check(&ip(1).user("").attribute("t", "x").build())
            .allowed()
    );
}

#[test]
fn anonymous_replaces_a_missing_part() {
    let gate = once("key: [user, \"attr:t\"], on_missing_key: anonymous");
    assert!(
        gate.check(&request().ip([1, 1, 1, 1]).attribute("t", "x").build())
            .allowed()
    );
    assert!(
        !gate
            .check(&request().ip([2, 2, 2, 2]).attribute("t", "x").build())
            .allowed()
    );
    assert!(gate.check(&request().attribute("t", "y").build()).allowed());
}

#[test]
fn a_rule_that_skips_does_not_match() {
    let gate = once("scope: per_user, on_missing_key: skip");
    for _ in 0..3 {
        let decision = gate.check(&request().user("").build());
        assert_eq!(decision.outcome().name(), "no_rule");
        assert!(decision.allowed() && decision.rule().is_none());
    }
    assert!(gate.user("u").allowed() && !gate.user("u").allowed());
}

#[test]
fn a_rule_that_denies_because_its_key_is_missing_says_so() {
    let gate = Gate::new(&set_of(
        "{ id: first, scope: global, priority: 1, bands: [{ capacity: 1, window: 1h }] },
         { id: r, scope: per_user, on_missing_key: deny, priority: 2, bands: [{ capacity: 5, window: 1h }] },
         { id: last, scope: global, priority: 3, algorithm: fixed_window, bands: [{ capacity: 1, window: 1h }] },
         { id: dark, scope: global, priority: 0, mode: shadow, bands: [{ capacity: 1, window: 1h }] }",
    ));
    let nobody = |gate: &Gate| gate.check(&request().build());
    let decision = nobody(&gate);
    let shown = fields(&decision);
    assert!(!shown.allowed);
    assert_eq!(shown.outcome, "never");
    assert_eq!(
        (shown.rule.as_deref(), shown.band, shown.limit),
        (Some("r"), None, None)
    );
    assert_eq!(
        (shown.remaining, shown.retry, shown.reset, shown.delay),
        (Some(0), None, 0, 0)
    );
    assert_eq!(shown.violated, ["r/missing_key"]);
    assert_eq!(gate.keys(), 0, "nothing is charged");
    assert!(gate.user("u").allowed());
    assert_eq!(
        violated(&nobody(&gate)),
        ["first/b0", "r/missing_key", "last/b0"]
    );
    assert_eq!(retry(&nobody(&gate)), None);
}

#[test]
fn a_shadow_rule_reports_a_missing_key() {
    let gate = once("scope: per_user, mode: shadow, on_missing_key: deny");
    let decision = gate.check(&request().build());
    assert!(decision.allowed());
    assert_eq!(decision.outcome().name(), "shadow_denied");
    assert_eq!(violated(&decision), ["r/missing_key"]);
}

#[test]
fn overrides_apply_to_exactly_their_identity() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: per_user, bands: [{ id: a, capacity: 2, window: 1h }], overrides: [
            { identity: vip, bands: [{ id: a, capacity: 5, window: 1h }, { id: b, capacity: 4, window: 1h }] },
            { identity: \"10.0.0.1\", bands: [{ capacity: 1, window: 1h }] }] }",
    ));
    assert_eq!(gate.passed(9, |gate| gate.user("vip")), 4);
    assert_eq!(gate.left(&["vip"]), [1, 0]);
    for user in ["VIP", "vip ", "u"] {
        assert_eq!(gate.passed(9, |gate| gate.user(user)), 2, "{user}");
    }
    // The address replaces the user, and no override applies to it.
    assert_eq!(gate.passed(9, |gate| gate.check(&from("10.0.0.1"))), 2);
    assert_eq!(gate.passed(9, |gate| gate.user("10.0.0.1")), 1);
}

#[test]
fn overrides_of_addresses_compare_as_they_count() {
    let gate = Gate::new(&set_of(
        "{ id: r, scope: per_ip, bands: [{ capacity: 1, window: 1h }], overrides: [
            { identity: \"::ffff:10.0.0.1\", bands: [{ capacity: 3, window: 1h }] },
            { identity: \"2001:db8:0:7::9\", bands: [{ capacity: 4, window: 1h }] }] },
         { id: pair, key: [user, ip], on_missing_key: skip, bands: [{ capacity: 9, window: 1h }], overrides: [
            { identity: [u, \"10.0.0.2\"], bands: [{ capacity: 1, window: 1h }] }] }",
    ));
    let passed = |ip: &'static str| gate.passed(9, |gate| gate.check(&from(ip)));
    assert_eq!(passed("10.0.0.1"), 3);
    assert_eq!(passed("2001:db8:0:7:1:2:3:4"), 4);
    assert_eq!(passed("2001:db8:0:8::9"), 1);
    let limit = |ip: [u8; 4]| -> Decision { gate.peek(&request().user("u").ip(ip).build()) };
    assert_eq!(
        limit([10, 0, 0, 2])
            .bands()
            .map(|(_, band)| band.limit().capacity())
            .sum::<u64>(),
        2
    );
    assert_eq!(
        limit([10, 0, 0, 3])
            .bands()
            .map(|(_, band)| band.limit().capacity())
            .sum::<u64>(),
        10
    );
}

#[test]
fn a_cost_comes_from_the_request_or_from_the_rule() {
    for (cost, context, expected) in [
        ("3", request(), 3),
        ("3", request().cost(5), 5),
        ("3", request().cost(0), 0),
        ("\"header:X-Cost\"", request().header("x-cost", "7"), 7),
        ("\"header:X-Cost\"", request().header("x-cost", "007"), 7),
        (
            "\"header:X-Cost\"",
            request().header("x-cost", "7").cost(2),
            2,
        ),
        ("\"attr:tokens\"", request().attribute("tokens", "40"), 40),
        // Missing, below 1, or anything but decimal digits: 1.
        ("\"attr:tokens\"", request(), 1),
        ("\"attr:tokens\"", request().attribute("tokens", "0"), 1),
        ("\"attr:tokens\"", request().attribute("tokens", ""), 1),
        ("\"attr:tokens\"", request().attribute("tokens", "-4"), 1),
        ("\"attr:tokens\"", request().attribute("tokens", "+4"), 1),
        ("\"attr:tokens\"", request().attribute("tokens", "4.0"), 1),
        ("\"attr:tokens\"", request().attribute("tokens", " 4"), 1),
        ("\"attr:tokens\"", request().attribute("tokens", "1e2"), 1),
        ("\"attr:tokens\"", request().attribute("tokens", "٤"), 1),
        ("\"attr:tokens\"", request().attribute("Tokens", "4"), 1),
    ] {
        let gate = Gate::new(&set_of(&format!(
            "{{ id: r, scope: global, cost: {cost}, bands: [{{ capacity: 100, window: 1h }}] }}"
        )));
        let decision = gate.check(&context.clone().build());
        assert_eq!(
            decision.remaining(),
            Some(100 - expected),
            "{cost} {context:?}"
        );
    }
    // A number that overflows is more than any capacity.
    let gate = Gate::new(&set_of(
        "{ id: r, scope: global, cost: \"attr:n\", bands: [{ capacity: 1000000000, window: 1h }] }",
    ));
    let huge = request().attribute("n", "99999999999999999999999").build();
    assert_eq!(gate.check(&huge).outcome().name(), "never");
}

/// All spellings are one path, unless the path is given as it is.
#[test]
fn a_path_counts_in_its_normal_form() {
    let gate = once("key: [path]");
    let read = |path| {
        request()
            .request_path(RequestPath::read(path).unwrap())
            .build()
    };
    assert!(gate.check(&read("/api;v=1/x")).allowed());
    for path in [
        "/api/x", "/%61pi/x", "//api/x", "/api%2fx", "/api\\x", "/api/x/", "/api/x//",
    ] {
        assert!(!gate.check(&read(path)).allowed(), "{path}");
    }
    assert!(!gate.check(&request().path("/api/x").build()).allowed());
    let given = ["/%61pi/x", "/api/x/"].map(|path| request().path(path).build());
    all_differ(&gate, &given);
}

/// Servers that route without case read all of them alike.
#[test]
fn a_path_that_ignores_case_counts_in_lower_case() {
    let gate = once("key: [path]");
    let read = |path| {
        let path = RequestPath::read(path).unwrap().ignoring_case();
        request().request_path(path).build()
    };
    assert!(gate.check(&read("/Api/X")).allowed());
    for path in ["/api/x", "/API/%58", "/aPI/x/"] {
        assert!(!gate.check(&read(path)).allowed(), "{path}");
    }
}
