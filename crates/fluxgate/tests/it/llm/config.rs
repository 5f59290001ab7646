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
fn the_reserve_is_optional() {
    for llm in [
        "{ rules: main }",
        "{ rules: main, reserve: { default_max_tokens: 9 } }",
    ] {
        let (code, stderr) = validate(llm);
        assert_eq!(code, Some(0), "{stderr}");
    }
}
