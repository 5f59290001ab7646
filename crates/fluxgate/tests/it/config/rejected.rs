//! The values that each field rejects, and the messages.

use super::only_fault;

/// Configs, and a part of the message.
const INVALID: &[(&str, &str)] = &[
    (
        "colour: red",
        "unknown field `colour` in a config; allowed are store, keys, listen",
    ),
    // Store.
    (
        "store: 'redis://u:hush@h'",
        "`store` must be memory, { memory: … } or { redis: … }",
    ),
    ("store: []", "`store` must be a mapping, not a list"),
    ("store: {}", "`store` must be memory"),
    ("store: { disk: {} }", "unknown field `disk` in `store`"),
    (
        "store: { memory: {}, redis: { url: 'redis://a' } }",
        "`store` is either `memory` or `redis`",
    ),
    (
        "store: { memory: { max_keys: 0 } }",
        "`max_keys` must be a whole number from 1 to 1000000000",
    ),
    (
        "store: { memory: { max_log_events: 0 } }",
        "`max_log_events` must be a whole number from 1 to 1000000000",
    ),
    (
        "store: { memory: { max_log_events: many } }",
        "`max_log_events` must be a whole number from 1 to 1000000000",
    ),
    (
        "store: { memory: { size: 1 } }",
        "unknown field `size` in `memory`",
    ),
    ("store: { redis: {} }", "`redis` needs `url` or `urls`"),
    ("store: { redis: x }", "`redis` must be a mapping"),
    (
        "store: { redis: { url: 'redis://a', urls: ['redis://b'] } }",
        "either `url` or `urls`",
    ),
    (
        "store: { redis: { urls: [] } }",
        "`urls` must not be an empty list",
    ),
    (
        "store: { redis: { url: ['redis://a'] } }",
        "`url` must be a text, not a list",
    ),
    (
        "store: { redis: { url: 'http://a' } }",
        "`url` must be redis://HOST",
    ),
    (
        "store: { redis: { urls: ['redis://'] } }",
        "a URL must be redis://HOST",
    ),
    (
        "store: { redis: { url: 'redis://a', password: x } }",
        "unknown field `password` in `redis`",
    ),
    (
        "store: { redis: { url: 'redis://a', mode: single } }",
        "`mode` must be one of auto, standalone, cluster, sentinel",
    ),
    (
        "store: { redis: { urls: ['redis://a', 'redis://b'], mode: standalone } }",
        "`mode: standalone` takes only one URL",
    ),
    (
        "store: { redis: { url: 'unix:///s', mode: cluster } }",
        "a unix:// socket can only be a single standalone server",
    ),
    (
        "store: { redis: { url: 'redis://a', mode: sentinel } }",
        "`mode: sentinel` needs `sentinel",
    ),
    (
        "store: { redis: { url: 'redis://a', mode: sentinel, sentinel: {} } }",
        "`sentinel` needs `master`",
    ),
    (
        "store: { redis: { url: 'redis://a', mode: sentinel, sentinel: { master: '' } } }",
        "`master` must have 1 to 200 bytes",
    ),
    (
        "store: { redis: { url: 'redis://a', sentinel: { master: m } } }",
        "belongs to `mode: sentinel` only",
    ),
    (
        "store: { redis: { url: 'redis://u@a', username: u } }",
        "the URL already names a user",
    ),
    (
        "store: { redis: { url: 'redis://u:p@a', password_file: f } }",
        "the URL already has a password",
    ),
    (
        "store: { redis: { url: 'redis://a', username: '' } }",
        "`username` must have",
    ),
    (
        "store: { redis: { url: 'redis://a', password_file: '' } }",
        "`password_file` must be the path of a file",
    ),
    (
        "store: { redis: { url: 'redis://a', deadline: 50 } }",
        "`deadline` must be a whole number with a unit",
    ),
    (
        "store: { redis: { url: 'redis://a', key_prefix: 'a{b' } }",
        "`key_prefix` must not contain braces",
    ),
    (
        "store: { redis: { url: 'redis://a', near_cache: yes } }",
        "`near_cache` must be true or false",
    ),
    (
        "store: { redis: { url: 'redis://a', max_cluster_waits: 0 } }",
        "`max_cluster_waits` must be a whole number from 1",
    ),
    (
        "store: { redis: { url: 'redis://a', tls: { ca: x } } }",
        "`tls` is for URLs that begin with rediss://",
    ),
    (
        "store: { redis: { url: 'rediss://a', tls: { cert: x } } }",
        "`cert` and `key` need each other",
    ),
    (
        "store: { redis: { url: 'rediss://a', tls: { pem: x } } }",
        "unknown field `pem` in `tls`",
    ),
    // Keys.
    (
        "keys: { hash_keys: some }",
        "`hash_keys` must be one of api_keys, all, none",
    ),
    (
        "keys: { hash_keys: all, hash_secret_file: [] }",
        "`hash_secret_file` must be a text",
    ),
    (
        "keys: { hash_keys: all, ipv6_prefix: 129 }",
        "`ipv6_prefix` must be a whole number from 1 to 128",
    ),
    // Listeners.
    ("listen: []", "`listen` must be a mapping, not a list"),
    (
        "listen: { http: 127.0.0.1:1 }",
        "unknown field `http` in `listen`; allowed are gateway, api, grpc, resp",
    ),
    (
        "listen: { api: 8081 }",
        "`api` must be an address and a port",
    ),
    (
        "listen: { api: 127.0.0.1:1, grpc: 127.0.0.1:1 }",
        "`grpc` has the same address as `api`",
    ),
    (
        "listen: { gateway: 127.0.0.1:1 }",
        "`listen.gateway` needs at least one route in `gateway.routes`",
    ),
    // Filters.
    ("filters: []", "`filters` must be a mapping"),
    (
        "filters: { '': {} }",
        "a filter's name must have 1 to 200 bytes",
    ),
    (
        "filters: { a: {}, a: {} }",
        "`a` appears twice in `filters`",
    ),
    (
        "filters: { a: { colour: red } }",
        "unknown field `colour` in a filter",
    ),
    (
        "filters: { a: { rule_set: [] } }",
        "`rule_set` must be a text",
    ),
    (
        "filters: { a: { include: [] } }",
        "`include` must not be an empty list",
    ),
    (
        "filters: { a: { include: [api] } }",
        "a path pattern must begin with `/`; `api` does not",
    ),
    (
        "filters: { a: { exclude: ['/a**'] } }",
        "`**` must be a whole segment",
    ),
    (
        "filters: { a: { exclude: /a } }",
        "`exclude` must be a list",
    ),
    (
        "filters: { a: { identity: { user: X-User-Id } } }",
        "`user`: `X-User-Id` is not a source; write header:NAME, query:NAME, cookie:NAME or jwt:CLAIM",
    ),
    (
        "filters: { a: { identity: { user: 'query:' } } }",
        "`user`: `` cannot be the name of a query parameter; it must not be empty",
    ),
    (
        "filters: { a: { identity: { user: [] } } }",
        "`user` must be a text, not a list",
    ),
    (
        "filters: { a: { identity: { api_key: 'jwt:key' } } }",
        "`jwt:key` needs a `jwt` section in the filter, which verifies tokens",
    ),
    (
        "filters: { a: { attributes: [] } }",
        "`attributes` must be a mapping",
    ),
    (
        "filters: { a: { attributes: { plan: free } } }",
        "`plan`: `free` is not a source",
    ),
    (
        "filters: { a: { attributes: { plan: 'jwt:plan' } } }",
        "`jwt:plan` needs a `jwt` section in the filter, which verifies tokens",
    ),
    (
        "filters: { a: { attributes: { '': 'header:a' } } }",
        "an attribute's name must have 1 to 200 bytes",
    ),
    ("filters: { a: { jwt: x } }", "`jwt` must be a mapping"),
    (
        "filters: { a: { jwt: {} } }",
        "`jwt` needs exactly one of `jwks_file`, `jwks_url` and `secret_file`",
    ),
    (
        "filters: { a: { jwt: { jwks_file: a, secret_file: b } } }",
        "`jwt` needs exactly one of `jwks_file`, `jwks_url` and `secret_file`",
    ),
    (
        "filters: { a: { jwt: { secret: a } } }",
        "unknown field `secret` in `jwt`",
    ),
    (
        "filters: { a: { jwt: { jwks_file: '' } } }",
        "`jwks_file` must be the path of a file",
    ),
    (
        "filters: { a: { jwt: { jwks_url: 'ftp://a' } } }",
        "`jwks_url` must be http://HOST:PORT or https://HOST:PORT (unknown scheme)",
    ),
    (
        "filters: { a: { jwt: { jwks_url: 'https://u:hush@a' } } }",
        "`jwks_url` must not have a user name or password",
    ),
    (
        "filters: { a: { jwt: { jwks_url: 'https:a b' } } }",
        "`jwks_url` must be",
    ),
    (
        "filters: { a: { jwt: { jwks_file: a, from: 'jwt:sub' } } }",
        "`from` must be header:NAME, query:NAME or cookie:NAME",
    ),
    (
        "filters: { a: { jwt: { jwks_file: a, issuer: [] } } }",
        "`issuer` must not be an empty list",
    ),
    (
        "filters: { a: { jwt: { jwks_file: a, audience: '' } } }",
        "`audience` must have 1 to 200 bytes",
    ),
    (
        "filters: { a: { jwt: { jwks_file: a, leeway: 30 } } }",
        "`leeway` must be a whole number with a unit",
    ),
    (
        "filters: { a: { jwt: { jwks_file: a, leeway: 2h } } }",
        "`leeway` must be at most 1h",
    ),
    (
        "filters: { a: { jwt: { jwks_file: a, on_invalid: allow } } }",
        "`on_invalid` must be one of anonymous, deny; `allow` is not",
    ),
    (
        "filters: { a: { identity: { api_key: 'header:a b' } } }",
        "`a b` cannot be the name of a header",
    ),
    (
        "filters: { a: { identity: { tenant: 'header:a' } } }",
        "unknown field `tenant` in `identity`",
    ),
    (
        "filters: { a: { trusted_proxies: [10.0.0.1/8] } }",
        "`10.0.0.1/8` has bits set beyond its prefix; did you mean 10.0.0.0/8?",
    ),
    (
        "filters: { a: { trusted_proxies: [10.0.0.0/33] } }",
        "`10.0.0.0/33` is not a network",
    ),
    (
        "filters: { a: { trusted_proxies: [all] } }",
        "`all` is not a network",
    ),
    (
        "filters: { a: { client_ip: peer } }",
        "`client_ip` must be header:NAME",
    ),
    (
        "filters: { a: { headers: { legacy: 1 } } }",
        "`legacy` must be true or false",
    ),
    (
        "filters: { a: { headers: { ietf: 1 } } }",
        "`ietf` must be true or false",
    ),
    (
        "filters: { a: { headers: { retry_after: 1 } } }",
        "`retry_after` must be true or false",
    ),
    (
        "filters: { a: { headers: { reset: soon } } }",
        "`reset` must be one of epoch, delta",
    ),
    (
        "filters: { a: { headers: { draft: 1 } } }",
        "unknown field `draft` in `headers`",
    ),
    (
        "filters: { a: { max_concurrent_waits: -1 } }",
        "`max_concurrent_waits` must be a whole number from 0 to 1000000",
    ),
    // Gateway.
    ("gateway: { port: 1 }", "unknown field `port` in `gateway`"),
    (
        "gateway: { routes: [] }",
        "`routes` must not be an empty list",
    ),
    ("gateway: { routes: [ x ] }", "a route must be a mapping"),
    (
        "gateway: { routes: [ { upstreams: [echo] } ] }",
        "a route needs `id`",
    ),
    (
        "gateway: { routes: [ { id: a } ] }",
        "a route needs `upstreams`",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [] } ] }",
        "`upstreams` must not be an empty list",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo] }, { id: a, upstreams: [echo] } ] }",
        "there is a route `a` already",
    ),
    (
        "gateway: { routes: [ { id: '', upstreams: [echo] } ] }",
        "`id` must have 1 to 200 bytes",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: ['redis://a'] } ] }",
        "an upstream must be http://HOST:PORT",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: ['http://a/b'] } ] }",
        "an upstream must be http://HOST:PORT",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], filters: [b] } ] }",
        "there is no filter `b`; there are none",
    ),
    (
        "{ filters: { c: {} }, gateway: { routes: [ { id: a, upstreams: [echo], filters: [b] } ] } }",
        "there is no filter `b`; there are c",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], weight: 1 } ] }",
        "unknown field `weight` in a route",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], match: { paths: [/a] } } ] }",
        "unknown field `paths` in `match`",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], match: { path: [a] } } ] }",
        "a path pattern must begin with `/`",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], match: { host: ['a:80'] } } ] }",
        "`a:80` is no host",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], match: { methods: ['a b'] } } ] }",
        "`a b` cannot be a method",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], match: { headers: { 'a b': c } } } ] }",
        "`a b` cannot be the name of a header",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], match: { headers: { a: b, A: b } } } ] }",
        "header `a` appears twice",
    ),
    (
        "gateway: { timeouts: { connect: 0s } }",
        "`connect` must be a whole number with a unit",
    ),
    (
        "gateway: { timeouts: { headers: x } }",
        "`headers` must be a whole number with a unit",
    ),
    (
        "gateway: { timeouts: { idle: [] } }",
        "`idle` must be a whole number with a unit",
    ),
    (
        "gateway: { timeouts: { request: 1 } }",
        "`request` must be a whole number with a unit",
    ),
    (
        "gateway: { timeouts: { total: 1s } }",
        "unknown field `total` in `timeouts`",
    ),
    (
        "gateway: { limits: { header_bytes: 1k } }",
        "`header_bytes` must be a whole number from 0",
    ),
    (
        "gateway: { limits: { body_bytes: -1 } }",
        "`body_bytes` must be a whole number from 0",
    ),
    (
        "gateway: { limits: { connections: '1' } }",
        "`connections` must be a whole number from 0",
    ),
    (
        "gateway: { limits: { upstream_connections: -1 } }",
        "`upstream_connections` must be a whole number from 0 to 1000000000",
    ),
    (
        "gateway: { limits: { streams: 0 } }",
        "`streams` must be a whole number from 1 to 100000",
    ),
    (
        "gateway: { limits: { streams: 100001 } }",
        "`streams` must be a whole number from 1 to 100000",
    ),
    (
        "gateway: { limits: { requests: 1 } }",
        "unknown field `requests` in `limits`",
    ),
    (
        "gateway: { tls: { cert: a } }",
        "`tls` needs `cert` and `key`",
    ),
    (
        "gateway: { tls: { cert: a, key: '' } }",
        "`key` must be the path of a file",
    ),
    // Rules.
    (
        "rules_from: {}",
        "`rules_from` must have either `dir: PATH` or `redis: {}`",
    ),
    (
        "rules_from: { dir: a, redis: {} }",
        "`rules_from` must have either",
    ),
    ("rules_from: { dir: '' }", "`dir` must be the path"),
    (
        "rules_from: { dir: a, poll: 0s }",
        "`poll` must be a whole number with a unit",
    ),
    (
        "rules_from: { redis: {} }",
        "rules from Redis need `store: { redis: … }`",
    ),
    (
        "rules_from: { url: a }",
        "unknown field `url` in `rules_from`",
    ),
    (
        "{ rules_from: { dir: a }, rule_sets: {} }",
        "`rule_sets` and `rules_from` exclude each other",
    ),
    (
        "{ on_missing_rule_set: maybe, store: memory }",
        "`on_missing_rule_set` must be one of allow, deny",
    ),
    (
        "call_limits: { on_error: maybe }",
        "`on_error` must be one of allow, deny, local; `maybe` is not",
    ),
    (
        "call_limits: { on_errors: deny }",
        "unknown field `on_errors` in `call_limits`",
    ),
    ("call_limits: deny", "`call_limits` must be a mapping"),
    (
        "filters: { a: { failed_closed_status: 500 } }",
        "`failed_closed_status` must be one of 503, 429; `500` is not",
    ),
    (
        "{ rule_sets: { a: {} }, store: memory }",
        "rule set `a` has no `rules`",
    ),
    // Admin and telemetry.
    ("admin: { token: a }", "unknown field `token` in `admin`"),
    ("admin: { open: 1 }", "`open` must be true or false"),
    (
        "admin: { open: true, tokens_file: t }",
        "`open: true` and `tokens_file` exclude each other",
    ),
    (
        "{ admin: { open: true }, listen: { api: '0.0.0.0:1' } }",
        "`open: true` is allowed only where the API listens on loopback",
    ),
    (
        "{ admin: { open: true }, listen: { api: '192.168.0.1:1' } }",
        "`listen.api` is 192.168.0.1:1",
    ),
    (
        "admin: { tokens_file: '' }",
        "`tokens_file` must be the path of a file",
    ),
    ("telemetry: { log: xml }", "`log` must be one of json, text"),
    (
        "telemetry: { level: loud }",
        "`level` must be one of error, warn, info, debug, trace",
    ),
    (
        "telemetry: { otlp: 'grpc://a' }",
        "`otlp` must be http://HOST:PORT",
    ),
    (
        "telemetry: { identities: 1 }",
        "`identities` must be true or false",
    ),
    (
        "telemetry: { metrics: 1 }",
        "unknown field `metrics` in `telemetry`",
    ),
];

#[test]
fn invalid_values_are_rejected_and_explained() {
    for (config, what) in INVALID {
        let fault = only_fault(config);
        assert!(fault.contains(what), "{config}\n{fault}");
        assert!(!fault.contains("hush"), "{config}\n{fault}");
    }
}
