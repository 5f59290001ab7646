//! Unknown sections, and invalid administration and telemetry.

use super::Rejected;

pub(super) const CASES: &[Rejected] = &[
    (
        "colour: red",
        "unknown field `colour` in a config; allowed are store, keys, listen",
    ),
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
    (
        "{ admin: { open: true }, listen: { api: { address: '0.0.0.0:1', tls: { cert: a, key: b } } } }",
        "`open: true` is allowed only where the API listens on loopback",
    ),
    (
        "shutdown: { delay: 1 }",
        "`delay` must be a whole number with a unit",
    ),
    ("shutdown: { grace: 2h }", "`grace` must be at most 1h"),
    (
        "shutdown: { wait: 1s }",
        "unknown field `wait` in `shutdown`; allowed are delay, grace",
    ),
    (
        "history: 7d",
        "`history` must be true, false or a mapping such as { keep: 7d }",
    ),
    ("history: { keep: 59m }", "`keep` must be from 1h to 90d"),
    ("history: { keep: 91d }", "`keep` must be from 1h to 90d"),
    (
        "history: { keep: 7 }",
        "`keep` must be a whole number with a unit",
    ),
    (
        "history: { denials: 999 }",
        "`denials` must be a whole number from 1000 to 1000000",
    ),
    (
        "history: { identities: 0 }",
        "`identities` must be a whole number from 10 to 100000",
    ),
    (
        "history: { days: 7 }",
        "unknown field `days` in `history`; allowed are keep, denials, identities",
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
        "telemetry: { otlp: { metrics: false } }",
        "`otlp` needs a `url`",
    ),
    (
        "telemetry: { otlp: { url: 'https://a' } }",
        "`url` must be http://HOST:PORT",
    ),
    (
        "telemetry: { identities: 1 }",
        "`identities` must be true or false",
    ),
    (
        "telemetry: { metrics: 1 }",
        "unknown field `metrics` in `telemetry`",
    ),
    (
        "webhooks: [ { secret_file: s } ]",
        "a webhook needs a `url`",
    ),
    (
        "webhooks: [ { url: 'http://a/x' } ]",
        "a webhook needs a `secret_file`",
    ),
    (
        "webhooks: [ { url: 'ftp://a', secret_file: s } ]",
        "`url` must be http://HOST:PORT or https://HOST:PORT",
    ),
    (
        "webhooks: [ { url: 'http://u:p@a', secret_file: s } ]",
        "`url` must not have a user name or password",
    ),
    (
        "webhooks: [ { url: 'http://a', secret_file: s, kinds: [denials] } ]",
        "a kind of `kinds` must be one of threshold, rules, store, upstream, login",
    ),
    (
        "webhooks: [ { url: 'http://a', secret_file: s, kinds: [store, store] } ]",
        "`store` appears twice in `kinds`",
    ),
    (
        "webhooks: [ { url: 'http://a', secret_file: s, kinds: [] } ]",
        "`kinds` must not be an empty list",
    ),
    (
        "webhooks: [ { url: 'http://a', secret_file: s, ca: c } ]",
        "`ca` is only for https",
    ),
    (
        "webhooks: [ { url: 'http://a', secret_file: s }, { url: 'http://a', secret_file: t } ]",
        "there is a webhook for this address already",
    ),
    (
        "webhooks: [ { url: 'http://a', secret_file: s, retries: 3 } ]",
        "unknown field `retries` in a webhook; allowed are url, secret_file, kinds, ca",
    ),
];
