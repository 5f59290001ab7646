//! Invalid listeners, routes and settings of the gateway.

use super::Rejected;

pub(super) const CASES: &[Rejected] = &[
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
    ("listen: { api: {} }", "`listen.api` needs an `address`"),
    (
        "listen: { api: { address: 1 } }",
        "`api` must be an address and a port",
    ),
    (
        "listen: { api: { port: 1 } }",
        "unknown field `port` in `listen.api`; allowed are address, tls",
    ),
    (
        "listen: { api: { address: ':1', tls: {} } }",
        "`tls` needs `cert` and `key`",
    ),
    (
        "listen: { api: { address: ':1', tls: { cert: a, key: '' } } }",
        "`key` must be the path of a file",
    ),
    (
        "listen: { api: { address: ':1', tls: { cert: a, key: b, ca: c } } }",
        "unknown field `ca` in `tls`; allowed are cert, key, client_ca",
    ),
    (
        "listen: { api: { address: ':1' }, grpc: { address: ':1' } }",
        "`grpc` has the same address as `api`",
    ),
    (
        "{ listen: { gateway: { address: ':1', tls: { cert: a, key: b } } }, gateway: { routes: [ { id: a, upstreams: [echo] } ], tls: { cert: a, key: b } } }",
        "`listen.gateway.tls` and `gateway.tls` exclude each other",
    ),
    (
        "gateway: { tls: { cert: a, key: b, client_ca: c } }",
        "unknown field `client_ca` in `tls`; allowed are cert, key",
    ),
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
        "gateway: { routes: [ { id: a, upstreams: [ { weight: 1 } ] } ] }",
        "an upstream needs a `url`",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [ { url: 'http://b', weight: 0 } ] } ] }",
        "`weight` must be a whole number from 1 to 100",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [ { url: 'http://b', ca: a } ] } ] }",
        "`ca` is only for https",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [ { url: 'ftp://b' } ] } ] }",
        "`url` must",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], health: {} } ] }",
        "`health` needs `path`, such as /healthz",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], health: { path: h } } ] }",
        "`path` must begin with / and have no spaces and no fragment",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], health: { path: /h, status: 600 } } ] }",
        "`status` must be a whole number from 200 to 599",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], retry: { attempts: 1 } } ] }",
        "`attempts` must be a whole number from 2 to 10",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], retry: { on: [404] } } ] }",
        "`on` lists connect, reset and statuses from 500 to 599, not `404`",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], retry: { on: [reset, reset] } } ] }",
        "`reset` appears twice",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], retry: { budget: 2 } } ] }",
        "`budget` must be a share: `2` is not a share",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], timeouts: { headers: 1s } } ] }",
        "unknown field `headers` in `timeouts`; allowed are connect, idle, request",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], limits: { streams: 1 } } ] }",
        "unknown field `streams` in `limits`; allowed are body_bytes",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], match: { headers: { a: { in: list } } } } ] }",
        "unknown field `in` in a condition; allowed are not, present",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], rewrite: { strip_prefix: api } } ] }",
        "`strip_prefix` must be whole segments without escapes",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], rewrite: { add_prefix: '/a/' } } ] }",
        "`add_prefix` must be whole segments without escapes",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], rewrite: { host: 'a b' } } ] }",
        "`host` must be client, upstream or a host",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], headers: { request: { set: { Host: a } } } } ] }",
        "the gateway sets `host` by itself",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], headers: { response: { remove: [X-RateLimit-Limit] } } } ] }",
        "the gateway sets `x-ratelimit-limit` by itself",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], headers: { request: { set: { a: b }, remove: [A] } } } ] }",
        "header `a` appears twice",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], cors: {} } ] }",
        "`cors` needs `origins`",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], cors: { origins: ['https://a/'] } } ] }",
        "`https://a/` is no origin",
    ),
    (
        "gateway: { routes: [ { id: a, upstreams: [echo], cors: { origins: ['*'], credentials: true } } ] }",
        "`credentials` need `origins` that are named",
    ),
    (
        "gateway: { proxy_protocol: true }",
        "`proxy_protocol` needs `trusted_proxies` of the gateway",
    ),
    (
        "gateway: { trusted_proxies: [10.0.0.1/8] }",
        "`10.0.0.1/8` has bits set beyond its prefix",
    ),
    (
        "gateway: { access_log: {} }",
        "`access_log` needs `file`, a path or \"-\" for standard output",
    ),
    (
        "gateway: { access_log: { file: '' } }",
        "`file` must be the path of a file",
    ),
    (
        "gateway: { access_log: { file: a, sample: 101% } }",
        "`sample` must be a share: `101%` is not a share from 0% to 100%",
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
];
