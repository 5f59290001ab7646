//! Invalid `jwt` sections of filters.

use super::Rejected;

pub(super) const CASES: &[Rejected] = &[
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
        "`from` must be header:NAME, bearer, query:NAME or cookie:NAME",
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
];
