//! The setting `llm` of a route.

use crate::support::Dir;

fn validate(llm: &str) -> (Option<i32>, String) {
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        format!(
            "listen: {{ gateway: \"127.0.0.1:0\" }}\n\
             filters: {{ main: {{ rule_set: s }}, other: {{ rule_set: s }} }}\n\
             gateway:\n  routes:\n    - id: r\n      upstreams: [\"http://127.0.0.1:1\"]\n      \
             filters: [main]\n      llm: {llm}\n\
             rule_sets: {{ s: {{ rules: [ {{ id: t, scope: per_api_key, \
             cost: \"llm:total_tokens\", bands: [ {{ capacity: 9, window: 1m }} ] }} ] }} }}\n"
        ),
    );
    let run = dir.run(&["validate", "fluxgate.yaml"]);
    (run.code, run.stderr)
}

#[test]
fn faults_are_reported_with_their_places() {
    for (llm, place, message) in [
        (
            "{ rules: other }",
            "8:21",
            "must be a filter of the route, not `other`; it has main",
        ),
        (
            "{ rules: nope }",
            "8:21",
            "must be a filter of the route, not `nope`",
        ),
        ("{}", "8:12", "`llm` needs `rules`"),
        (
            "{ rules: main, reserve: { prompt_bytes_per_token: 0 } }",
            "8:62",
            "from 1 to 16",
        ),
        (
            "{ rules: main, reserve: { default_max_tokens: 0 } }",
            "8:58",
            "from 1 to",
        ),
        ("{ rules: main, resreve: {} }", "8:27", "resreve"),
    ] {
        let (code, stderr) = validate(llm);
        assert_eq!(code, Some(78), "{llm}: {stderr}");
        let line = format!("fluxgate.yaml:{place}: ");
        assert!(
            stderr.contains(&line) && stderr.contains(message),
            "{llm}: {stderr}"
        );
    }
}

#[test]
fn a_route_without_rules_in_tokens_is_a_warning() {
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        "listen: { gateway: \"127.0.0.1:0\" }\nfilters: { main: { rule_set: s } }\n\
         gateway: { routes: [ { id: r, upstreams: [echo], filters: [main], \
         llm: { rules: main } } ] }\n\
         rule_sets: { s: { rules: [ { id: t, scope: per_ip, bands: [1/m] } ] } }\n",
    );
    let run = dir.run(&["validate", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let expected = "route `r` has `llm`, but no rule of filter `main` counts tokens";
    assert!(run.stderr.contains(expected), "{run:?}");
}

#[test]
fn tokens_that_no_route_counts_are_a_warning() {
    let warnings = |filter: &str, routes: &str| {
        let dir = Dir::new();
        dir.write(
            "fluxgate.yaml",
            format!(
                "listen: {{ gateway: \"127.0.0.1:0\" }}\nfilters: {{ main: {{ rule_set: s{filter} }} }}\n\
                 gateway: {{ routes: [ {routes} ] }}\n\
                 rule_sets: {{ s: {{ rules: [ {{ id: t, scope: global, \
                 cost: \"llm:total_tokens\", bands: [9999/m] }} ] }} }}\n"
            ),
        );
        dir.run(&["validate", "fluxgate.yaml"]).stderr
    };
    let without = "{ id: r, upstreams: [echo], filters: [main] }";
    let with = "{ id: m, upstreams: [echo], filters: [main], llm: { rules: main } }";
    let expected = "route `r` has no `llm`, so rule `t` of filter `main` counts each request as 1";
    let found = warnings("", without);
    assert!(found.contains(expected), "{found}");
    // The rule may be meant for the other route, or the caller may state the tokens.
    assert_eq!(warnings("", &format!("{with}, {without}")), "");
    let stated = ", attributes: { \"llm:total_tokens\": \"header:X-Tokens\" }, \
                  trusted_proxies: [\"10.0.0.0/8\"]";
    assert!(!warnings(stated, without).contains("has no `llm`"));
}

#[test]
fn a_capacity_below_the_default_reservation_is_a_warning() {
    let (_, stderr) = validate("{ rules: main }");
    let expected = "route `r`: calls without `max_tokens` are always denied: they reserve 4096 \
                    tokens (`default_max_tokens`), but band `b0` of rule `t` has a capacity of 9";
    assert!(stderr.contains(expected), "{stderr}");
    let (_, stderr) = validate("{ rules: main, reserve: { default_max_tokens: 9 } }");
    assert!(!stderr.contains("always denied"), "{stderr}");
}

#[test]
fn the_reserve_is_optional() {
    for llm in [
        "{ rules: main }",
        "{ rules: main, reserve: { default_max_tokens: 9 } }",
    ] {
        let (code, stderr) = validate(llm);
        assert_eq!(code, Some(0), "{stderr}");
    }
}
