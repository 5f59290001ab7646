//! Invalid stores, and invalid keys in them.

use super::Rejected;

pub(super) const CASES: &[Rejected] = &[
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
];
