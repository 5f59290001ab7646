//! The values that each field accepts, and warnings.

use super::{RULES, only_fault, validate};

const VALID: &[&str] = &[
    "store: memory",
    "store: { memory: {} }",
    "store: { memory: { max_keys: 1, max_log_events: 1 } }",
    "store: { redis: { url: 'redis://localhost' } }",
    "store: { redis: { url: 'rediss://u:p@h:6380/1', tls: { ca: a, cert: b, key: c } } }",
    "store: { redis: { url: 'unix:///run/redis.sock', mode: standalone } }",
    "store: { redis: { urls: ['redis://a', 'redis://b'], mode: cluster } }",
    "store: { redis: { urls: ['redis://a', 'redis://b'] } }",
    "store: { redis: { url: 'redis://a', mode: sentinel, sentinel: { master: m, password_file: p } } }",
    "store: { redis: { url: 'redis://a', username: u, password_file: p, deadline: 1ms, key_prefix: x, near_cache: false, max_cluster_waits: 1 } }",
    "store: { redis: { url: null, urls: ['redis://a'] } }",
    "keys: { hash_keys: none, hash_secret_file: null, ipv6_prefix: 128 }",
    "keys: { hash_keys: all }",
    "listen: { api: '[::]:0', grpc: '[::]:0', resp: 0.0.0.0:1 }",
    "filters: {}",
    "filters: { a: {} }",
    "filters: { a: { exclude: [], trusted_proxies: [], ignore_case: true } }",
    "filters: { a: { trusted_proxies: [10.0.0.1, '::1', 'fd00::/8', 0.0.0.0/0] } }",
    "filters: { a: { client_ip: ['header:CF-Connecting-IP', 'header:X-Forwarded-For'] } }",
    "filters: { a: { identity: { user: ['header:X-User', 'cookie:user'], api_key: bearer }, attributes: { a: ['query:a', bearer] } } }",
    "filters: { a: { client_ip: 'header:Forwarded' }, b: { client_ip: 'header:CF-Connecting-IP' } }",
    "filters: { a: { headers: { legacy: false, ietf: false, retry_after: false, reset: delta } } }",
    "filters: { a: { max_concurrent_waits: 0 } }",
    "filters: { a: { failed_closed_status: 503 }, b: { failed_closed_status: 429 } }",
    "gateway: {}",
    "gateway: { routes: [ { id: a, upstreams: [echo, 'https://b', 'http://[::1]:1'], filters: [] } ] }",
    "gateway: { routes: [ { id: a, match: { headers: { X-A: b }, host: ['*.a.b', '[::1]'] }, upstreams: [echo] } ] }",
    "gateway: { routes: [ { id: a, upstreams: [ { url: 'https://b', weight: 100, ca: ca.pem }, echo ] } ] }",
    "gateway: { routes: [ { id: a, upstreams: [echo], health: { path: '/h?x=1' } } ] }",
    "gateway: { routes: [ { id: a, upstreams: [echo], health: { path: /h, interval: 1s, timeout: 100ms, healthy: 1, unhealthy: 100, status: 204 } } ] }",
    "gateway: { routes: [ { id: a, upstreams: [echo], retry: {} } ] }",
    "gateway: { routes: [ { id: a, upstreams: [echo], retry: { attempts: 10, on: [connect, '500'], methods: [PUT], budget: 0% } } ] }",
    "gateway: { routes: [ { id: a, upstreams: [echo], timeouts: { connect: 1s, idle: 1s, request: 1s }, limits: { body_bytes: 0 } } ] }",
    "gateway: { routes: [ { id: a, upstreams: [echo], match: { headers: { A: [b, c], D: { not: e }, F: { not: [g] }, H: { present: true } } } } ] }",
    "gateway: { routes: [ { id: a, upstreams: [echo], rewrite: { strip_prefix: /api, add_prefix: '/v1/x', host: 'a.example:8080' } } ] }",
    "gateway: { routes: [ { id: a, upstreams: [echo], rewrite: { host: upstream }, headers: { request: { set: { X-A: 'b c' }, remove: [X-B] }, response: { set: {}, remove: [Server] } } } ] }",
    "gateway: { routes: [ { id: a, upstreams: [echo], cors: { origins: ['https://app.example.com', 'http://localhost:3000'], methods: [GET], headers: [X-A], credentials: true, max_age: 1h } } ] }",
    "gateway: { routes: [ { id: a, upstreams: [echo], cors: { origins: ['*'] } } ] }",
    "gateway: { proxy_protocol: true, trusted_proxies: [10.0.0.0/8, '::1'] }",
    "gateway: { access_log: { file: '-' } }",
    "gateway: { access_log: { file: /var/log/a.log, sample: 0.5% } }",
    "gateway: { timeouts: { connect: 1ms, headers: 1m, idle: 1h, request: 1d } }",
    "gateway: { limits: { header_bytes: 0, body_bytes: 1, connections: 0 } }",
    "gateway: { limits: { upstream_connections: 0, streams: 1 } }",
    "gateway: { limits: { upstream_connections: 1000000000, streams: 100000 } }",
    "rules_from: { dir: rules.d }",
    "{ rules_from: { redis: {}, poll: 1s }, store: { redis: { url: 'redis://a' } } }",
    "{ on_missing_rule_set: deny, rules_from: { dir: d, poll: 1m } }",
    #[cfg(feature = "mongodb")]
    "rules_from: { mongodb: { url: 'mongodb://ann:hu%2Fsh@a:1,b/?replicaSet=r', database: d, collection: c.d }, poll: 1m }",
    #[cfg(feature = "mongodb")]
    "rules_from: { mongodb: { url_file: f, cache_file: c } }",
    "call_limits: {}",
    "call_limits: { on_error: allow }",
    "call_limits: { on_error: deny }",
    "{ admin: { open: true }, listen: { api: '127.0.0.2:1' } }",
    "{ admin: { open: true }, listen: { api: '[::1]:1' } }",
    "{ admin: { open: false }, listen: { api: '0.0.0.0:1' } }",
    "{ admin: { tokens_file: t }, listen: { api: '0.0.0.0:1' } }",
    "history: { keep: 90d, denials: 1000000, identities: 10 }",
    "history: { keep: 60m }",
    "history: true",
    "history: false",
    "telemetry: { log: text, level: trace, otlp: 'http://127.0.0.1:4317', identities: true }",
    "telemetry: { otlp: { url: 'http://127.0.0.1:4318', metrics: false, interval: 10s } }",
    "{ listen: { gateway: 127.0.0.1:1 }, gateway: { routes: [ { id: a, upstreams: [echo] } ] } }",
];

#[test]
fn valid_values_are_accepted() {
    for config in VALID {
        let run = validate(config);
        assert_eq!(run.code, Some(0), "{config}\n{run:?}");
    }
}

#[test]
fn a_filter_must_name_a_rule_set_of_the_file() {
    let config = |name| format!("{RULES}filters: {{ f: {{ rule_set: {name} }} }}\n");
    assert_eq!(validate(&config("api")).code, Some(0));
    let fault = only_fault(&config("web"));
    assert_eq!(fault, "there is no rule set `web`; the rule sets are api");
    let fault = only_fault(&config("app"));
    let meant = "there is no rule set `app`; the rule sets are api; did you mean `api`?";
    assert_eq!(fault, meant);
    let elsewhere = "rules_from: { dir: d }\nfilters: { f: { rule_set: web } }\n";
    assert_eq!(validate(elsewhere).code, Some(0));
}

#[test]
fn settings_that_are_probably_mistakes_cause_warnings() {
    let cases = [
        ("telemetry: {}", "`listen` names no listener"),
        (
            "store: { redis: { url: 'redis://a' } }",
            "`keys.hash_secret_file` is missing",
        ),
        ("filters: { f: {} }", "filter `f` has no `rule_set`"),
        (
            "gateway: { routes: [ { id: a, upstreams: [echo] } ] }",
            "`listen.gateway` is missing",
        ),
    ];
    for (config, warning) in cases {
        let run = validate(config);
        assert_eq!(run.code, Some(0), "{config}");
        let mut lines = run.stderr.lines();
        let found = lines
            .any(|line| line.starts_with("fluxgate.yaml: warning: ") && line.contains(warning));
        assert!(found, "{config}\n{}", run.stderr);
    }
    let quiet = [
        "{ listen: { api: 127.0.0.1:1 }, keys: { hash_keys: none }, store: { redis: { url: 'redis://a' } } }",
        "{ listen: { api: 127.0.0.1:1 }, keys: { hash_secret_file: s }, store: { redis: { url: 'redis://a' } } }",
        "{ listen: { api: 127.0.0.1:1 }, keys: { hash_keys: all }, store: memory }",
    ];
    for config in quiet {
        assert_eq!(validate(config).stderr, "", "{config}");
    }
}
