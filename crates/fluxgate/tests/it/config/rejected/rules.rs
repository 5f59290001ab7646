//! Invalid sources and defaults of rules.

use super::Rejected;

pub(super) const CASES: &[Rejected] = &[
    (
        "rules_from: {}",
        "`rules_from` must have exactly one of `dir: PATH`, `redis: {}`, `http: { url: … }` and `mongodb: { url: … }`",
    ),
    (
        "rules_from: { dir: a, redis: {} }",
        "`rules_from` must have exactly one of",
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
    ("rules_from: { http: {} }", "`http` needs `url`"),
    (
        "rules_from: { http: { url: 'https://user:pw@example.com/rules' } }",
        "`url` must not have a user name or password",
    ),
    (
        "rules_from: { http: { url: 'ftp://example.com/rules' } }",
        "`url` must",
    ),
    (
        "rules_from: { http: { url: 'http://example.com/', poll: 1s } }",
        "unknown field `poll` in `http`",
    ),
    #[cfg(not(feature = "mongodb"))]
    (
        "rules_from: { mongodb: { url: 'mongodb://a' } }",
        "this program was built without MongoDB; build it with `cargo build --release --features mongodb`",
    ),
    #[cfg(feature = "mongodb")]
    (
        "rules_from: { mongodb: { database: a } }",
        "`mongodb` needs exactly one of `url` and `url_file`",
    ),
    #[cfg(feature = "mongodb")]
    (
        "rules_from: { mongodb: { url: 'mongodb://a', url_file: f } }",
        "`mongodb` needs exactly one of `url` and `url_file`",
    ),
    #[cfg(feature = "mongodb")]
    (
        "rules_from: { mongodb: { url: 'mongodb+srv://ann:hush@a' } }",
        "`url` must name the hosts themselves",
    ),
    #[cfg(feature = "mongodb")]
    (
        "rules_from: { mongodb: { url: 'mongodb://ann:hush@a:x' } }",
        "`url` must be a connection string such as mongodb://",
    ),
    #[cfg(feature = "mongodb")]
    (
        "rules_from: { mongodb: { url_file: f, database: 'a.b' } }",
        "`database` must not contain any of",
    ),
    #[cfg(feature = "mongodb")]
    (
        "rules_from: { mongodb: { url_file: f, collection: '' } }",
        "`collection` must have 1 to 200 bytes",
    ),
    #[cfg(feature = "mongodb")]
    (
        "rules_from: { mongodb: { url_file: f, query: {} } }",
        "unknown field `query` in `mongodb`",
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
        "{ rule_sets: { a: {} }, store: memory }",
        "rule set `a` has no `rules`",
    ),
];
