//! `fluxgate explain`.

use serde_json::{Value, json};

use crate::support::{Dir, TWO_A_SECOND};

const TIERS: &str = "
rule_sets:
  api:
    rules:
      - id: pro
        group: plan
        match: { attributes: { plan: pro } }
        scope: per_user
        bands: [ { id: burst, capacity: 100, window: 1s } ]
      - id: others
        group: plan
        scope: per_user
        bands: [ { id: burst, capacity: 10, window: 1s }, { id: daily, capacity: 1000, window: 1d } ]
      - id: tenants
        key: [ 'attr:tenant' ]
        on_missing_key: skip
        bands: [ 5/s ]
      - id: trial
        mode: shadow
        scope: per_api_key
        bands: [ 1/m ]
      - id: old
        enabled: false
        scope: global
        bands: [ 1/s ]
";

#[test]
fn each_rule_has_a_block() {
    let dir = Dir::with_rules(TIERS);
    let request = r#"{"user":"ann","api_key":"secret-key-of-ann","attributes":{"plan":"pro"}}"#;
    let run = dir.run(&["explain", "--rules", "rules.yaml", "--request", request]);
    let expected = "\
allowed: pro/burst, 99 of 100 left

pro: applies
  group: plan, place 1
  identity: user=ann
  band burst: 100 of 100 left, 99 after it; full in 10ms

others: matches, but does not apply
  group: plan, place 2; pro applies instead
  identity: user=ann

tenants: does not match: its key is missing
  key: attr:tenant is missing (on_missing_key: skip)

trial: applies
  mode: shadow
  identity: api_key=secr…nn
  band b0: 1 of 1 left, 0 after it; full in 60s

old: disabled
";
    assert_eq!(
        (run.code, &*run.stdout, &*run.stderr),
        (Some(0), expected, "")
    );
}

#[test]
fn a_denial_names_what_denies() {
    let dir = Dir::with_rules(TIERS);
    let request = r#"{"user":"ann","cost":11}"#;
    let run = dir.run(&["explain", "--rules", "rules.yaml", "--request", request]);
    let lines = run.lines();
    assert_eq!(
        lines[0],
        "never: others/burst, 10 of 10 left; denied, and waiting does not help"
    );
    assert_eq!(lines[1], "violated: others/burst");
    assert!(
        lines.contains(&"pro: does not match: match.attributes.plan"),
        "{lines:?}"
    );
    assert!(
        lines.contains(&"  band burst: 10 of 10 left, denies"),
        "{lines:?}"
    );
    // A shadow rule is not decided if the request is denied.
    assert!(
        lines.contains(&"  band b0: 1 of 1 left, 1 after it"),
        "{lines:?}"
    );
}

#[test]
fn a_missing_part_of_a_key_is_named_with_its_effect() {
    let rules = "rule_sets:\n  api:\n    rules:\n      \
                 - { id: key, key: [user, 'attr:nobody'], on_missing_key: deny, bands: [ 1/s ] }\n      \
                 - { id: pair, key: [user, 'header:X-A'], bands: [ 1/s ] }\n      \
                 - { id: web, match: { path: [/web] }, key: [user], bands: [ 1/s ] }\n";
    let dir = Dir::with_rules(rules);
    let request = r#"{"ip":"10.0.0.1","user":""}"#;
    let arguments = ["explain", "--rules", "rules.yaml", "--request", request];
    let expected = "\
never: denied, and waiting does not help
violated: key/missing_key

key: applies
  key: user, attr:nobody are missing (on_missing_key: deny)

pair: applies
  key: user, header:x-a are missing (on_missing_key: ip)
  identity: ip=10.0.0.1 ip=10.0.0.1
  band b0: 1 of 1 left, 1 after it

web: does not match: match.path
";
    assert_eq!(dir.run(&arguments).stdout, expected);
    let run = dir.run(&[&arguments[..], &["--json"]].concat());
    let explained: Value = serde_json::from_str(run.lines()[0]).unwrap();
    let rules = explained["rules"].as_array().unwrap();
    let missing: Vec<_> = rules.iter().map(|rule| &rule["missing"]).collect();
    let expected = [
        &json!(["user", "attr:nobody"]),
        &json!(["user", "header:x-a"]),
        &json!([]),
    ];
    assert_eq!(missing, expected);
}

#[test]
fn the_json_is_that_of_the_api() {
    let dir = Dir::with_rules(TIERS);
    dir.write("request.json", r#"{"user":"ann"}"#);
    let arguments = ["explain", "--rules", "rules.yaml", "--json", "--request"];
    let from = |request: &str| dir.run(&[&arguments[..], &[request]].concat());
    let run = from("@request.json");
    let explained: Value = serde_json::from_str(run.lines()[0]).unwrap();
    assert_eq!(explained["decision"]["rule"], "others");
    let state =
        |remaining: u64, reset: u64| json!({ "remaining": remaining, "reset_after_ms": reset });
    assert_eq!(
        explained["rules"][1],
        json!({
            "rule": "others", "matched": true, "failed": null, "identity": "user=ann", "missing": [],
            "applies": true, "mode": "enforce", "rollout": null,
            "group": { "name": "plan", "place": 2, "instead": null },
            "bands": [
                { "band": "burst", "limit": 10, "before": state(10, 0), "after": state(9, 100), "denies": false },
                { "band": "daily", "limit": 1000, "before": state(1000, 0), "after": state(999, 86_400), "denies": false },
            ],
        })
    );
    let arguments = [&arguments[..], &["-"]].concat();
    let piped = dir.run_with_stdin(&arguments, r#"{"user":"ann"}"#);
    assert_eq!(piped, run);
}

#[test]
fn rules_may_be_in_a_config_or_a_directory() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("rules.d")).unwrap();
    dir.write("rules.d/rules.yaml", TWO_A_SECOND);
    dir.write(
        "dir.yaml",
        "rules_from: { dir: rules.d }\nlisten: { api: '127.0.0.1:0' }\n",
    );
    dir.write(
        "inline.yaml",
        format!("listen: {{ api: '127.0.0.1:0' }}\n{TWO_A_SECOND}"),
    );
    for rules in ["rules.d", "dir.yaml", "inline.yaml"] {
        let run = dir.run(&["explain", "--rules", rules, "--request", r#"{"user":"u"}"#]);
        assert_eq!(run.lines()[0], "allowed: r/b0, 1 of 2 left", "{rules}");
        dir.write("input.ndjson", r#"{"t":0,"user":"u"}"#);
        let simulate = ["simulate", "--rules", rules, "--against", rules];
        let run = dir.run(&[&simulate[..], &["--input", "input.ndjson"]].concat());
        assert!(run.stdout.contains(r#""rule":"r""#), "{rules}: {run:?}");
    }
    let redis = "store: { redis: { url: 'redis://127.0.0.1:1' } }\nrules_from: { redis: {} }\n";
    dir.write("redis.yaml", redis);
    let run = dir.run(&["explain", "--rules", "redis.yaml", "--request", "{}"]);
    assert_eq!(run.code, Some(78), "{run:?}");
    assert!(
        run.stderr.starts_with("redis.yaml: the rules are in Redis"),
        "{run:?}"
    );
    let run = dir.run(&[
        "simulate",
        "--rules",
        "redis.yaml",
        "--input",
        "input.ndjson",
    ]);
    assert_eq!(run.code, Some(78), "{run:?}");
    assert!(
        run.stderr.starts_with("redis.yaml: the rules are in Redis"),
        "{run:?}"
    );
}

#[test]
fn the_rule_set_may_be_named() {
    let second = TWO_A_SECOND
        .replace("rule_sets:\n", "")
        .replace("api:", "web:");
    let dir = Dir::with_rules(&format!(
        "{TWO_A_SECOND}{}",
        second.trim_start_matches('\n')
    ));
    let explain = |more: &[&str]| {
        let arguments = ["explain", "--rules", "rules.yaml"];
        dir.run(&[&arguments[..], more].concat())
    };
    assert_eq!(
        explain(&["--request", "{}", "--rule-set", "web"]).code,
        Some(0)
    );
    assert_eq!(
        explain(&["--request", r#"{"rule_set":"api"}"#]).code,
        Some(0)
    );
    for (more, message) in [
        (
            &["--request", "{}"][..],
            "--request: `rule_set` is missing\n",
        ),
        (
            &["--request", "{}", "--rule-set", "no"],
            "--request: there is no rule set `no`\n",
        ),
    ] {
        let run = explain(more);
        assert_eq!((run.code, &*run.stderr), (Some(65), message));
    }
}

#[test]
fn invalid_requests_and_rules_have_their_exit_codes() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    dir.write("bad.yaml", "rule_sets: 5\n");
    let explain = |rules, request| {
        let run = dir.run(&["explain", "--rules", rules, "--request", request]);
        assert_eq!(run.stdout, "", "{request}");
        (run.code, run.stderr)
    };
    for (request, message) in [
        ("{", "EOF while parsing"),
        ("[]", "not a JSON object"),
        (r#"{"colour":"red"}"#, "`colour`"),
        (r#"{"ip":"here"}"#, "`ip` must be an IP address"),
        (r#"{"cost":-1}"#, "`cost`"),
    ] {
        let (code, stderr) = explain("rules.yaml", request);
        assert_eq!(code, Some(65), "{request}: {stderr}");
        assert!(
            stderr.starts_with("--request: ") && stderr.contains(message),
            "{stderr}"
        );
    }
    assert_eq!(explain("rules.yaml", "@missing.json").0, Some(66));
    dir.write("large.json", format!("{{}}{}", " ".repeat(1024 * 1024)));
    let too_large = "--request: large.json is larger than 1048576 bytes\n";
    assert_eq!(
        explain("rules.yaml", "@large.json"),
        (Some(65), too_large.into())
    );
    assert_eq!(explain("missing.yaml", "{}").0, Some(66));
    let (code, stderr) = explain("bad.yaml", "{}");
    assert_eq!(code, Some(78));
    assert!(stderr.starts_with("bad.yaml:1:12: "), "{stderr}");
}
