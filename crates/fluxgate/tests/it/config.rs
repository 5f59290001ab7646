//! Configurations: which are accepted, which are rejected, and how they are printed.

mod accepted;
mod overrides;
mod random;
mod rejected;
mod secrets;
mod show;

use crate::support::{Dir, Run};

/// A config with every section. It has no rules.
const WHOLE: &str = r#"
store:
  redis:
    url: redis://127.0.0.1:6379
    mode: auto
    username: fluxgate
    password_file: /run/secrets/redis
    deadline: 50ms
    key_prefix: fluxgate
    near_cache: true
    max_cluster_waits: 1000
keys: { hash_keys: api_keys, hash_secret_file: /run/secrets/hash, ipv6_prefix: 64 }
listen: { gateway: "127.0.0.1:8080", api: "127.0.0.1:8081", grpc: "127.0.0.1:8082", resp: "127.0.0.1:8083" }
filters:
  main:
    rule_set: api-limits
    include: ["/api/**"]
    exclude: ["/api/health"]
    identity: { user: "header:X-User-Id", api_key: "header:X-API-Key" }
    attributes: { tenant: "header:X-Tenant-Id", plan: "jwt:plan" }
    jwt: { from: "cookie:token", jwks_url: "https://issuer.example/jwks", issuer: i, audience: [a, b], leeway: 30s, on_invalid: deny }
    trusted_proxies: ["10.0.0.0/8"]
    headers: { legacy: true, ietf: true, retry_after: true, reset: epoch }
    max_concurrent_waits: 100
gateway:
  routes:
    - id: api-route
      match: { path: ["/api/**"], host: ["api.example.com"], methods: [GET, POST] }
      upstreams: ["http://127.0.0.1:9000"]
      filters: [main]
  timeouts: { connect: 1s, headers: 10s, idle: 60s, request: 30s }
  limits: { header_bytes: 65536, body_bytes: 0, connections: 10000 }
  tls: { cert: /etc/fluxgate/tls.crt, key: /etc/fluxgate/tls.key }
rule_sets: {}
on_missing_rule_set: allow
call_limits: { on_error: local }
admin: { tokens_file: /etc/fluxgate/tokens }
telemetry: { log: json, level: info, otlp: null }
history: { keep: 7d, denials: 100000, identities: 1000 }
webhooks: [ { url: "https://hooks.example.com/fluxgate?token=1", secret_file: /run/secrets/hook, kinds: [threshold, store], ca: /etc/ca.pem } ]
"#;

/// One rule set, `api`.
const RULES: &str = "rule_sets: { api: { rules: [ { id: r, scope: global, bands: [ { capacity: 1, window: 1s } ] } ] } }\n";

fn validate(config: &str) -> Run {
    let dir = Dir::new();
    dir.write("fluxgate.yaml", config);
    dir.run(&["validate", "fluxgate.yaml"])
}

/// Returns the only fault, without its position, which must be in the file.
#[track_caller]
fn only_fault(config: &str) -> String {
    let run = validate(config);
    assert_eq!(run.code, Some(78), "{config}\n{run:?}");
    let lines: Vec<_> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{config}\n{lines:#?}");
    let mut parts = lines[0].splitn(4, ':');
    assert_eq!(parts.next(), Some("fluxgate.yaml"), "{lines:?}");
    for number in [parts.next(), parts.next()] {
        assert!(number.unwrap().parse::<u32>().unwrap() > 0);
    }
    parts.next().unwrap().trim().to_owned()
}

#[test]
fn a_config_with_every_section_is_valid() {
    let run = validate(WHOLE);
    let ok = "fluxgate.yaml: ok, 4 listener(s), 0 rule set(s) with 0 enabled rule(s)\n";
    assert_eq!((run.code, &*run.stdout), (Some(0), ok), "{run:?}");
    let warning = "filter `main`: there is no rule set `api-limits` (there are none); its \
                   requests are not limited";
    assert_eq!(
        run.stderr,
        format!("fluxgate.yaml:16:15: warning: {warning}\n")
    );
}

#[test]
fn all_faults_are_reported_in_the_order_of_the_file() {
    let run = validate(
        "\
store: redis
keys: { hash_keys: some, colour: red }
listen:
  api: nowhere:80
  grpc: 127.0.0.1:80
  resp: 127.0.0.1:80
rule_sets:
  api: { rules: [] }
",
    );
    let expected = [
        "1:8: `store` must be memory, { memory: … } or { redis: … }",
        "2:20: `hash_keys` must be one of api_keys, all, none; `some` is not",
        "2:26: unknown field `colour` in `keys`; allowed are hash_keys, hash_secret_file, ipv6_prefix",
        "4:8: `api` must be an address and a port, such as \"127.0.0.1:8080\", \"[::1]:8080\" or \"localhost:8080\"; \":8080\" listens on every address",
        "6:9: `resp` has the same address as `grpc`",
        "8:17: `rules` must not be an empty list",
    ];
    let expected = expected.map(|line| format!("fluxgate.yaml:{line}"));
    assert_eq!(run.stderr.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_rule_file_may_set_how_keys_are_hashed() {
    let run = validate(&format!("keys: {{ hash_keys: all }}\n{RULES}"));
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[test]
fn a_listener_may_have_a_short_address() {
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        "listen: { api: :1, grpc: localhost:2, resp: ':3' }\n",
    );
    let run = dir.run(&["config", "show", "--config", "fluxgate.yaml"]);
    for line in [
        "api: \"[::]:1\"",
        "grpc: \"127.0.0.1:2\"",
        "resp: \"[::]:3\"",
    ] {
        assert!(run.stdout.contains(line), "{run:?}");
    }
    let run = validate("listen: { api: ':1', grpc: '127.0.0.1:1', resp: '[::1]:1' }\n");
    let fault = "has the same port as `api`, and one of them listens on every address";
    let expected = [
        format!("fluxgate.yaml:1:28: `grpc` {fault}"),
        format!("fluxgate.yaml:1:49: `resp` {fault}"),
    ];
    assert_eq!(run.stderr.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn help_is_a_command() {
    let run = |arguments: &[&str]| Dir::new().run(arguments);
    let help = run(&["help"]);
    assert_eq!(
        (help.code, &help.stdout),
        (Some(0), &run(&["--help"]).stdout)
    );
    let help = run(&["help", "simulate"]);
    assert_eq!(
        (help.code, &help.stdout),
        (Some(0), &run(&["simulate", "--help"]).stdout)
    );
    assert_eq!(run(&["help", "tea"]).code, Some(2));
}

/// The config is invalid, so that nothing starts.
#[test]
fn a_config_file_may_be_named_in_three_ways() {
    let dir = Dir::new();
    dir.write("bad.yaml", "colour: red\n");
    for arguments in [
        &["run", "--config", "bad.yaml"][..],
        &["run", "bad.yaml"],
        &["--config", "bad.yaml"],
        &["--set", "listen={}", "--config", "bad.yaml"],
        &["config", "show", "bad.yaml"],
    ] {
        let run = dir.run(arguments);
        assert_eq!(run.code, Some(78), "{run:?}");
        assert!(run.stderr.starts_with("bad.yaml:1:1: "), "{run:?}");
    }
    for (arguments, reason) in [
        (
            &["run", "bad.yaml", "--config", "bad.yaml"][..],
            "cannot be used with",
        ),
        (&["--config", "bad.yaml", "run"], "cannot be used with"),
        (&["bad.yaml"], "unrecognized subcommand 'bad.yaml'"),
    ] {
        let run = dir.run(arguments);
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.stderr.contains(reason), "{run:?}");
    }
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = Dir::new().run(&["completions", shell]);
        assert!(
            run.code == Some(0) && run.stdout.contains("simulate"),
            "{shell}"
        );
    }
    assert_eq!(Dir::new().run(&["completions", "tea"]).code, Some(2));
}
