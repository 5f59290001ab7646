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
        (
            "{ rules: main, unknown: maybe }",
            "8:36",
            "`unknown` must be allow, deny or { cost: TOKENS }, not `maybe`",
        ),
        (
            "{ rules: main, unknown: {} }",
            "8:36",
            "`unknown` needs `cost`",
        ),
        ("{ rules: main, unknown: { cost: 0 } }", "8:44", "from 1 to"),
        ("{ rules: main, unknown: { price: 1 } }", "8:38", "price"),
        ("{ rules: main, unknown: [] }", "8:36", "`unknown`"),
        (
            "{ rules: main, on_abort: half }",
            "8:37",
            "must be one of seen, reserved; `half` is not",
        ),
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
fn the_buffer_is_a_size() {
    let validate = |buffer: &str| {
        let dir = Dir::new();
        let config = format!("gateway: {{ llm: {{ buffer: {buffer} }} }}\n");
        dir.write("fluxgate.yaml", config);
        let shown = dir
            .run(&["config", "show", "--config", "fluxgate.yaml"])
            .stdout;
        let shown = shown
            .lines()
            .find_map(|line| line.trim().strip_prefix("buffer: "));
        let run = dir.run(&["validate", "fluxgate.yaml"]);
        (run.code, run.stderr, shown.map(str::to_owned))
    };
    for (written, shown) in [
        ("64KiB", "64KiB"),
        ("\"64KiB\"", "64KiB"),
        ("1024KiB", "1MiB"),
        ("2GiB", "2GiB"),
        ("1", "1"),
        ("1000", "1000"),
        ("2048", "2KiB"),
    ] {
        let (code, stderr, found) = validate(written);
        assert_eq!((code, found.as_deref()), (Some(0), Some(shown)), "{stderr}");
    }
    for bad in [
        "0",
        "-1",
        "1.5MiB",
        "64KB",
        "64 KiB",
        "64kib",
        "MiB",
        "true",
        "[]",
        "\"\"",
        "99999999999GiB",
        "18446744073709551616",
    ] {
        let (code, stderr, _) = validate(bad);
        assert_eq!(code, Some(78), "{bad}: {stderr}");
        let expected = "fluxgate.yaml:1:27: `buffer` must be a size from 1 to";
        assert!(stderr.contains(expected), "{bad}: {stderr}");
    }
}

#[test]
fn a_buffer_below_the_largest_body_is_a_warning() {
    let warnings = |settings: &str| {
        let dir = Dir::new();
        dir.write(
            "fluxgate.yaml",
            format!(
                "filters: {{ main: {{ rule_set: s }} }}\ngateway: {{ {settings}, routes: [ {{ \
                 id: r, upstreams: [echo], filters: [main], llm: {{ rules: main }} }} ] }}\n\
                 rule_sets: {{ s: {{ rules: [ {{ id: t, scope: per_api_key, \
                 cost: \"llm:total_tokens\", bands: [9999/m] }} ] }} }}\n"
            ),
        );
        dir.run(&["validate", "fluxgate.yaml"]).stderr
    };
    let found = warnings("llm: { buffer: 16MiB }");
    let expected = "`gateway.llm.buffer` has 16777216 bytes, but a body may have 33554432";
    assert!(found.contains(expected), "{found}");
    let found = warnings("llm: { buffer: 16MiB }, limits: { body_bytes: 16777216 }");
    assert!(!found.contains("buffer"), "{found}");
}

#[test]
fn unknown_calls_that_never_pass_are_a_warning() {
    let reserve = "reserve: { default_max_tokens: 9 }";
    let expected = "route `r`: POST requests that are no known calls are always denied: they cost \
                    10 tokens (`unknown`), but band `b0` of rule `t` has a capacity of 9";
    let (_, stderr) = validate(&format!(
        "{{ rules: main, {reserve}, unknown: {{ cost: 10 }} }}"
    ));
    assert!(stderr.contains(expected), "{stderr}");
    for unknown in ["{ cost: 9 }", "allow", "deny"] {
        let (_, stderr) = validate(&format!("{{ rules: main, {reserve}, unknown: {unknown} }}"));
        assert!(!stderr.contains("always denied"), "{stderr}");
    }
}

#[test]
fn the_settings_of_a_route_are_shown() {
    let shown = |llm: &str| {
        let dir = Dir::new();
        dir.write(
            "fluxgate.yaml",
            format!(
                "filters: {{ main: {{ rule_set: s }} }}\ngateway: {{ routes: [ {{ id: r, \
                 upstreams: [echo], filters: [main], llm: {llm} }} ] }}\n"
            ),
        );
        let run = dir.run(&["config", "show", "--config", "fluxgate.yaml"]);
        let lines = run.stdout.lines().map(str::trim);
        let lines: Vec<_> = lines
            .skip_while(|line| *line != "unknown:" && !line.starts_with("unknown: "))
            .take(3)
            .collect();
        lines.join(" ")
    };
    assert!(shown("{ rules: main }").starts_with("unknown: cost: 4096 on_abort: seen"));
    let given = shown("{ rules: main, unknown: deny, on_abort: reserved }");
    assert!(
        given.starts_with("unknown: deny on_abort: reserved"),
        "{given}"
    );
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
