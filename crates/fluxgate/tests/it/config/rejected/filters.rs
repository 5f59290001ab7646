//! Invalid filters.

use super::Rejected;

pub(super) const CASES: &[Rejected] = &[
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
        "`user`: `X-User-Id` is not a source; write header:NAME, bearer, query:NAME, cookie:NAME, jwt:CLAIM, mcp:method or mcp:name",
    ),
    (
        "filters: { a: { identity: { user: 'query:' } } }",
        "`user`: `` cannot be the name of a query parameter; it must not be empty",
    ),
    (
        "filters: { a: { identity: { user: [] } } }",
        "`user` must not be an empty list",
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
    (
        "filters: { a: { failed_closed_status: 500 } }",
        "`failed_closed_status` must be one of 503, 429; `500` is not",
    ),
];
