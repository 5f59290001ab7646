//! `fluxgate validate`.

use crate::support::{Dir, TWO_A_SECOND, one_rule};

#[test]
fn a_valid_file_is_ok() {
    let dir = Dir::with_rules(TWO_A_SECOND);
    let run = dir.run(&["validate", "rules.yaml"]);
    assert_eq!(
        run.lines(),
        ["rules.yaml: ok, 1 rule set(s) with 1 enabled rule(s)"]
    );
}

/// Returns a directory with a config that takes its rules from these files.
fn with_rule_dir(files: &[(&str, &str)]) -> Dir {
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        "rules_from: { dir: rules.d }\nlisten: { api: '127.0.0.1:0' }\n",
    );
    std::fs::create_dir(dir.path("rules.d")).unwrap();
    for (name, text) in files {
        dir.write(&format!("rules.d/{name}"), text);
    }
    dir
}

#[test]
fn a_directory_of_rules_is_validated() {
    let dir = with_rule_dir(&[
        ("a.yaml", TWO_A_SECOND),
        ("b.yaml", "rule_sets: {}\n"),
        ("c.txt", "x"),
    ]);
    let good = "ok, 1 rule set(s) with 1 enabled rule(s)";
    assert_eq!(
        dir.run(&["validate", "rules.d"]).lines(),
        [format!("rules.d: {good}")]
    );
    assert_eq!(
        dir.run(&["validate", "fluxgate.yaml"]).lines(),
        ["fluxgate.yaml: ok, 1 listener(s), 1 rule set(s) with 1 enabled rule(s) from rules.d"]
    );
}

#[test]
fn faults_in_a_directory_name_their_files() {
    let twice = format!("{TWO_A_SECOND}\ncolour: red\n");
    let dir = with_rule_dir(&[("a.yaml", TWO_A_SECOND), ("b.yaml", &twice)]);
    for named in ["rules.d", "fluxgate.yaml"] {
        let run = dir.run(&["validate", named]);
        assert_eq!(run.code, Some(78), "{named}: {}", run.stderr);
        let faults: Vec<_> = run.stderr.lines().collect();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].starts_with("rules.d/b.yaml:3:3:"), "{faults:?}");
        assert!(
            faults[0].ends_with(" is already in rules.d/a.yaml"),
            "{faults:?}"
        );
        assert!(faults[1].contains("unknown field `colour`"), "{faults:?}");
    }
}

#[test]
fn a_missing_rule_directory_is_only_a_warning() {
    let dir = with_rule_dir(&[]);
    std::fs::remove_dir(dir.path("rules.d")).unwrap();
    let run = dir.run(&["validate", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(0));
    assert_eq!(
        run.stderr,
        "fluxgate.yaml:1:20: warning: `rules_from.dir`: the directory rules.d does not exist on \
         this machine\n"
    );
    assert_eq!(dir.run(&["validate", "rules.d"]).code, Some(66));
    let run = dir.run(&["run", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(66));
    let error = "fluxgate.yaml:1:20: `rules_from.dir`: rules.d: No such file";
    assert!(run.stderr.starts_with(error), "{run:?}");
    let run = dir.run(&["run", "fluxgate.yaml", "--set", "rules_from.dir=other.d"]);
    let error = "--set rules_from.dir: `rules_from.dir`: other.d: No such file";
    assert!(run.stderr.starts_with(error), "{run:?}");
}

#[test]
fn json_is_also_yaml() {
    let dir = Dir::with_rules(
        r#"{"rule_sets":{"a":{"rules":[{"id":"r","scope":"global","bands":[{"capacity":1,"window":"1s"}]}]}}}"#,
    );
    assert_eq!(dir.run(&["validate", "rules.yaml"]).code, Some(0));
}

#[test]
fn every_fault_has_file_line_and_column_in_the_order_of_the_file() {
    let dir = Dir::with_rules(
        "\
on_missing_rule_set: maybe
rule_sets:
  api:
    on_error: panic
    rules:
      - id: Bad Id
        scope: per_user
        key: [ip]
        algorithm: magic
        bands:
          - { capacity: 0, window: 1s }
          - { capacity: 1 }
      - id: twice
        scope: everyone
        bands: []
      - id: twice
        scope: global
        colour: red
        cost: 0
        bands: [ { id: b1, capacity: 1, window: 5w }, { capacity: 1, window: 1s } ]
",
    );
    let run = dir.run(&["validate", "rules.yaml"]);
    assert_eq!(run.code, Some(78));
    assert!(run.stdout.is_empty());
    let expected = [
        "1:22: `on_missing_rule_set` must be one of allow, deny; `maybe` is not",
        "4:15: `on_error` must be one of allow, deny, local; `panic` is not",
        "6:13: `Bad Id` is not a rule id; allowed is [a-z0-9][a-z0-9_-]* up to 200 characters",
        "8:14: a rule has either a `scope` or a `key`, not both",
        "9:20: `algorithm` must be one of token_bucket, leaky_bucket, fixed_window, sliding_log, sliding_window, concurrency, gcra; `magic` is not",
        "11:25: `capacity` must be a whole number from 1 to 1000000000, not `0`",
        "12:13: a band needs a `window`",
        "14:16: `scope` must be one of global, per_ip, per_user, per_api_key; `everyone` is not",
        "15:16: `bands` must not be an empty list",
        "16:13: rule set `api` already has a rule `twice`",
        "18:9: unknown field `colour` in a rule; allowed are id, name, enabled, mode, action, status, priority, match, scope, key, group, rollout, on_missing_key, algorithm, shape, hold, bands, cost, clamp, on_exceed, max_wait, lease, overrides, charge, notify, reset_on_change, attributes",
        "19:15: `cost` must be a whole number from 1 to 1000000000, header:NAME, attr:NAME, \
         llm:total_tokens, llm:prompt_tokens or llm:completion_tokens",
        "20:49: `window` must be a whole number with a unit (ms, s, m, h or d) from 1ms to 366d, such as 500ms or 5m",
        "20:55: this rule already has a band `b1` (without an `id`, a band is b0, b1, … by its position)",
    ];
    let given: Vec<_> = run.stderr.lines().collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|fault| format!("rules.yaml:{fault}"))
        .collect();
    assert_eq!(given, expected);
}

/// Rules, and a part of the message.
const REJECTED: &[(&str, &str)] = &[
    ("scope: global", "a rule needs `bands`"),
    (
        "bands: [ { capacity: 1, window: 1s } ]",
        "a rule needs a `scope` or a `key`",
    ),
    (
        "scope: global, bands: [ { window: 1s } ]",
        "a band needs a `capacity`",
    ),
    (
        "scope: global, bands: [ { capacity: 1000000001, window: 1s } ]",
        "from 1 to 1000000000, not `1000000001`",
    ),
    (
        "scope: global, bands: [ { capacity: 1.5, window: 1s } ]",
        "not `1.5`",
    ),
    (
        "scope: global, bands: [ { capacity: '1', window: 1s } ]",
        "not the text \"1\"",
    ),
    (
        "scope: global, algorithm: sliding_log, bands: [ { capacity: 100001, window: 1s } ]",
        "`capacity` is 100001; allowed is 1 to 100000",
    ),
    (
        "scope: global, bands: [ { capacity: 1, window: 367d } ]",
        "`window` must be",
    ),
    (
        "scope: global, bands: [ { capacity: 1, window: 0s } ]",
        "`window` must be",
    ),
    (
        "scope: global, bands: [ { capacity: 1, window: 60 } ]",
        "`window` must be",
    ),
    (
        "scope: global, bands: [ { capacity: 1000000000, window: 1s, refill: 1, period: 1s } ]",
        "would take more than 3660 days",
    ),
    (
        "scope: global, algorithm: fixed_window, bands: [ { capacity: 1, window: 1s, refill: 1 } ]",
        "`refill` belongs to token_bucket and leaky_bucket only",
    ),
    (
        "scope: global, algorithm: sliding_log, bands: [ { capacity: 1, window: 1s, period: 1s } ]",
        "`period` belongs to token_bucket and leaky_bucket only",
    ),
    (
        "scope: global, shape: true, bands: [ { capacity: 1, window: 1s } ]",
        "`shape: true` belongs to leaky_bucket only",
    ),
    (
        "scope: global, algorithm: leaky_bucket, shape: true, on_exceed: wait, bands: [ { capacity: 1, window: 1s } ]",
        "`shape: true` cannot be combined with `on_exceed: wait`",
    ),
    (
        "scope: global, hold: 5s, bands: [1/s]",
        "`hold` is only for `algorithm: concurrency`; to hold a rate, send `hold` with the check",
    ),
    (
        "scope: global, algorithm: concurrency, hold: 60, bands: [ { capacity: 1 } ]",
        "`hold` must be a duration from 1s to 24h, such as 60s, not 60",
    ),
    (
        "scope: global, algorithm: concurrency, hold: 500ms, bands: [ { capacity: 1 } ]",
        "`hold` must be a duration from 1s to 24h, such as 60s, not 500ms",
    ),
    (
        "scope: global, algorithm: concurrency, bands: [10/s]",
        "a band of concurrency must be { capacity: N }, without a window",
    ),
    (
        "scope: global, algorithm: concurrency, on_exceed: wait, bands: [ { capacity: 1 } ]",
        "with `algorithm: concurrency`: slots cannot be reserved ahead",
    ),
    (
        "scope: global, cost: 'llm:prompt_tokens', clamp: true, bands: [1/s]",
        "`clamp` needs a cost of llm:total_tokens or llm:completion_tokens",
    ),
    (
        "scope: global, clamp: true, bands: [1/s]",
        "`clamp` needs a cost of llm:total_tokens or llm:completion_tokens",
    ),
    (
        "scope: global, on_exceed: wait, max_wait: 0s, bands: [ { capacity: 1, window: 1s } ]",
        "`max_wait` must be",
    ),
    (
        "scope: global, match: { path: [api] }, bands: [ { capacity: 1, window: 1s } ]",
        "a path pattern must begin with `/`; `api` does not",
    ),
    (
        "scope: global, match: { path: ['/a**'] }, bands: [ { capacity: 1, window: 1s } ]",
        "`**` must be a whole segment",
    ),
    (
        "scope: global, match: { methods: [] }, bands: [ { capacity: 1, window: 1s } ]",
        "`methods` must not be an empty list",
    ),
    (
        "scope: global, match: { headers: { A: x, a: y } }, bands: [ { capacity: 1, window: 1s } ]",
        "header `a` appears twice",
    ),
    (
        "key: [], bands: [ { capacity: 1, window: 1s } ]",
        "`key` must not be an empty list",
    ),
    (
        "key: [session], bands: [ { capacity: 1, window: 1s } ]",
        "`session` is not a part of a key",
    ),
    (
        "key: ['header:a b'], bands: [ { capacity: 1, window: 1s } ]",
        "`a b` cannot be the name of a header",
    ),
    (
        "scope: global, cost: -1, bands: [ { capacity: 1, window: 1s } ]",
        "`cost` must be",
    ),
    (
        "scope: global, mode: off, bands: [ { capacity: 1, window: 1s } ]",
        "`mode` must be one of enforce, shadow; `off` is not",
    ),
    (
        "scope: global, enabled: yes, bands: [ { capacity: 1, window: 1s } ]",
        "`enabled` must be true or false",
    ),
    (
        "scope: global, priority: high, bands: [ { capacity: 1, window: 1s } ]",
        "`priority` must be a whole number",
    ),
    (
        "scope: global, bands: [ { id: a/b, capacity: 1, window: 1s } ]",
        "`a/b` is not a band id",
    ),
    (
        "scope: global, bands: [ { capacity: 1, window: 1s } ], overrides: [ { identity: x, bands: [ { capacity: 1, window: 1s } ] } ]",
        "a global rule has no identities",
    ),
    (
        "scope: per_ip, bands: [ { capacity: 1, window: 1s } ], overrides: [ { identity: x, bands: [ { capacity: 1, window: 1s } ] } ]",
        "`x` is not an IP address",
    ),
    (
        "scope: per_user, bands: [ { capacity: 1, window: 1s } ], overrides: [ { identity: [a, b], bands: [ { capacity: 1, window: 1s } ] } ]",
        "the key has 1 part(s), the identity 2 value(s)",
    ),
    (
        "scope: per_user, bands: [ { capacity: 1, window: 1s } ], overrides: [ { identity: x } ]",
        "an override needs `bands`",
    ),
    (
        "scope: per_ip, bands: [ { capacity: 1, window: 1s } ], overrides: [ { identity: '1.2.3.4', bands: [ { capacity: 1, window: 1s } ] }, { identity: '::ffff:1.2.3.4', bands: [ { capacity: 1, window: 1s } ] } ]",
        "there is an override for this identity already",
    ),
];

#[test]
fn files_with_keys_that_are_missing_or_empty_are_reported() {
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        "listen: { api: '127.0.0.1:0' }
filters:
  a: { rule_set: api, identity: { user: 'jwt:sub' }, jwt: { secret_file: missing } }
  b: { rule_set: api, identity: { user: 'jwt:sub' }, jwt: { jwks_file: empty } }
  c: { rule_set: api, identity: { user: 'jwt:sub' }, jwt: { jwks_file: jwks } }
rule_sets: { api: { rules: [ { id: r, scope: per_user, bands: [ 1/s ] } ] } }
",
    );
    dir.write("empty", "");
    dir.write("jwks", "{}");
    let run = dir.run(&["validate", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(
        run.stderr,
        "fluxgate.yaml:3:74: warning: `secret_file`: the file missing does not exist on this \
         machine\n\
         fluxgate.yaml:4:72: warning: `jwks_file`: the file empty is empty\n"
    );
    let strict = dir.run(&["validate", "--strict", "fluxgate.yaml"]);
    assert_eq!(strict.code, Some(78), "{strict:?}");
}

#[test]
fn values_outside_the_domain_are_rejected_and_explained() {
    for (rule, what) in REJECTED {
        let dir = Dir::with_rules(&one_rule(rule));
        let run = dir.run(&["validate", "rules.yaml"]);
        assert_eq!(run.code, Some(78), "{rule}");
        let lines: Vec<_> = run.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{rule}: {lines:?}");
        assert!(lines[0].starts_with("rules.yaml:4:"), "{rule}: {lines:?}");
        assert!(lines[0].contains(what), "{rule}: {lines:?}");
    }
}

#[test]
fn a_misspelled_field_is_reported_with_the_one_that_was_meant() {
    let rules = one_rule("scope: global, atributes: { a: b }, bands: [ 1/s ]");
    let run = Dir::with_rules(&rules).run(&["validate", "rules.yaml"]);
    let message = "unknown field `atributes` in a rule; did you mean `attributes`? allowed are ";
    assert!(run.stderr.contains(message), "{run:?}");
    let dir = Dir::new();
    dir.write("fluxgate.yaml", "lisen: { api: '127.0.0.1:0' }\n");
    let run = dir.run(&["validate", "fluxgate.yaml"]);
    let message = "unknown field `lisen` in a config; did you mean `listen`? allowed are ";
    assert!(run.stderr.contains(message), "{run:?}");
    let rules = one_rule("scope: global, colour: red, bands: [ 1/s ]");
    let run = Dir::with_rules(&rules).run(&["validate", "rules.yaml"]);
    let message = "unknown field `colour` in a rule; allowed are ";
    assert!(run.stderr.contains(message), "{run:?}");
}

#[test]
fn a_merge_key_is_reported() {
    let rules = "rule_sets:
  api:
    rules:
      - &all { id: all, scope: per_user, bands: [ 1/s ] }
      - { <<: *all, id: other }
";
    let run = Dir::with_rules(rules).run(&["validate", "rules.yaml"]);
    assert_eq!(run.code, Some(78), "{run:?}");
    let message = "rules.yaml:5:11: merge keys (`<<`) are not supported; write the fields out\n";
    assert!(run.stderr.contains(message), "{run:?}");
}

#[test]
fn a_file_that_is_not_yaml_or_not_a_rule_file_is_reported_with_its_position() {
    let cases = [
        ("rule_sets: [", "rules.yaml:1:13: not valid YAML: "),
        ("a: b: c", "rules.yaml:1:5: not valid YAML: "),
        (
            "",
            "rules.yaml:1:1: a rule file must be a mapping, not nothing",
        ),
        (
            "[]",
            "rules.yaml:1:1: a rule file must be a mapping, not a list",
        ),
        ("{}", "rules.yaml:1:1: `rule_sets` is missing"),
        (
            "rule_sets: 7",
            "rules.yaml:1:12: `rule_sets` must be a mapping, not a single value",
        ),
        (
            "rule_sets: {}\nrule_sets: {}",
            "rules.yaml:2:1: `rule_sets` appears twice in a rule file",
        ),
        (
            "rule_sets: { a: {} }",
            "rules.yaml:1:17: rule set `a` has no `rules`",
        ),
        (
            "rule_sets: {}\n---\nrule_sets: {}",
            "rules.yaml:3:1: only one document is allowed",
        ),
    ];
    for (text, beginning) in cases {
        let dir = Dir::with_rules(text);
        let run = dir.run(&["validate", "rules.yaml"]);
        assert_eq!(run.code, Some(78), "{text:?}");
        assert!(
            run.stderr.lines().any(|line| line.starts_with(beginning)),
            "{text:?}: {}",
            run.stderr
        );
    }
}

#[test]
fn a_missing_file_exits_with_66() {
    let run = Dir::new().run(&["validate", "nowhere.yaml"]);
    assert_eq!(run.code, Some(66));
    assert_eq!(
        run.stderr,
        "nowhere.yaml: No such file or directory (os error 2)\n"
    );
}
