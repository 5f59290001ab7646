//! `fluxgate config show`.

use super::WHOLE;
use crate::support::{Dir, Run};

fn show(config: &str) -> Run {
    let dir = Dir::new();
    dir.write("fluxgate.yaml", config);
    dir.run(&["config", "show", "--config", "fluxgate.yaml"])
}

#[test]
fn the_output_is_a_config_that_prints_itself() {
    let redis = "store: { redis: { urls: ['redis://a', 'redis://b'], mode: sentinel, sentinel: { master: \"m: #\" } } }";
    let names = r##"filters: { 'yes': { exclude: ['/a b', '/#', "/\n\x85\0\x7f"] }, '7': {}, "é \"x\" \uFEFF\u2028": {}, '--- x': {}, '~': {}, '<<': {}, 'a: b # c': {} }"##;
    for config in [
        WHOLE,
        redis,
        names,
        "rules_from: { dir: rules.d }",
        #[cfg(feature = "mongodb")]
        "rules_from: { mongodb: { url: 'mongodb://ann:hush@a:1,b/?tls=true', cache_file: c } }",
        "listen: { api: { address: '127.0.0.1:1', tls: { cert: a, key: b, client_ca: c } }, grpc: { address: ':2' } }\nshutdown: { delay: 5s }",
        "store: memory\nhistory: false",
        "store: memory\nhistory: true",
        "store: memory\nhistory: { keep: 90m, denials: 5000 }",
        "store: memory",
    ] {
        let first = show(config);
        assert_eq!(first.code, Some(0), "{first:?}");
        let second = show(&first.stdout);
        assert_eq!(second, first, "{}", first.stdout);
    }
}

#[test]
fn defaults_are_filled_in() {
    let run = show("store: memory");
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "# The effective configuration of fluxgate.yaml.",
            "# warning: `listen` names no listener: the service accepts no connections",
            "store:",
            "  memory:",
            "    max_keys: 1000000",
            "    max_log_events: 4000000",
            "keys:",
            "  hash_keys: api_keys",
            "  ipv6_prefix: 64",
            "filters: {}",
            "gateway:",
            "  proxy_protocol: false",
            "  timeouts:",
            "    connect: 1s",
            "    headers: 10s",
            "    idle: 1m",
            "    request: 30s",
            "  limits:",
            "    header_bytes: 65536",
            "    body_bytes: 0",
            "    connections: 10000",
            "    upstream_connections: 10000",
            "    streams: 100",
            "  llm:",
            "    buffer: 256MiB",
            "on_missing_rule_set: allow",
            "call_limits:",
            "  on_error: local",
            "admin:",
            "  open: false",
            "  record: false",
            "telemetry:",
            "  log: json",
            "  level: info",
            "  identities: false",
            "history:",
            "  keep: 7d",
            "  denials: 100000",
            "  identities: 1000",
            "shutdown:",
            "  delay: 0s",
            "  grace: 25s",
        ]
    );
}

#[test]
fn secrets_are_redacted() {
    let run = show(
        "
store: { redis: { url: 'redis://ann:hush-1@h:1/2' } }
telemetry: { otlp: 'http://ann:hush-2@h:1/' }
rule_sets:
  api:
    lists: { stolen: [hush-6, 'sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b'], users: [eve] }
    rules:
      - { id: no, action: deny, match: { api_key: { in: stolen }, user: { in: users } } }
      - { id: one, action: deny, match: { api_key: hush-7 } }
      - { id: more, action: deny, match: { api_key: { not: [hush-8, hush-9] } } }
      - id: a
        scope: per_api_key
        bands: [ { capacity: 1, window: 1s } ]
        overrides:
          - { identity: hush-3, bands: [ { capacity: 2, window: 1s } ] }
          - { identity: hush-4, bands: [ { capacity: 2, window: 1s } ] }
      - id: b
        key: [user, api_key]
        bands: [ { capacity: 1, window: 1s } ]
        overrides:
          - { identity: [ann, hush-5], bands: [ { capacity: 2, window: 1s } ] }
",
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.stdout.contains("hush"), "{}", run.stdout);
    assert!(run.stdout.contains("redis://ann:***@h:1/2"));
    assert!(run.stdout.contains("identity: [ann, \"(hidden 0)\"]"));
    assert!(run.stdout.contains("sha256:2bb80d") && run.stdout.contains("eve"));
    assert!(
        run.stdout
            .contains("# warning: `keys.hash_secret_file` is missing")
    );
    assert_eq!(show(&run.stdout).code, Some(0));
}

#[test]
fn the_demo_is_printed_and_valid() {
    let dir = Dir::new();
    let run = dir.run(&["config", "show"]);
    dir.write("demo.yaml", run.lines().join("\n"));
    let run = dir.run(&["validate", "demo.yaml"]);
    assert_eq!(
        run.lines(),
        ["demo.yaml: ok, 4 listener(s), 1 rule set(s) with 5 enabled rule(s)"]
    );
}

#[test]
fn the_query_of_a_webhook_is_hidden() {
    let run = show("webhooks: [ { url: 'https://a.example/x?token=hush-3', secret_file: s } ]");
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.stdout.contains("hush-3"), "{}", run.stdout);
    let lines = "webhooks:\n  - url: \"https://a.example/x?***\"\n    secret_file: s\n    kinds: [threshold, rules, store, upstream, login]\n";
    assert!(run.stdout.contains(lines), "{}", run.stdout);
}
