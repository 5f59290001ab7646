//! Requests that some servers read as another request. Each was seen with a real framework.

use Treatment::{Counted, Rejected, Removed, RemovedByProxies};

/// A request, and another spelling of it.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Where the API key comes from.
    pub api_key: &'static str,
    /// The scope and the match of the rule, in YAML.
    pub rule: &'static str,
    /// A request that the rule counts.
    pub plain: SentRequest,
    /// The request that some server reads like it.
    pub spelled: SentRequest,
    /// The required treatment of the spelling.
    pub treatment: Treatment,
}

/// The treatment of a spelling after the plain request has used up the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It is denied.
    Counted,
    /// It is answered with 400.
    Rejected,
    /// Its last header does not reach the server, or it is answered with 400.
    Removed,
    /// Likewise, wherever `X-Forwarded-For` and the like are written.
    RemovedByProxies,
}

/// Names and values of headers.
type SentHeaders = &'static [(&'static str, &'static str)];

/// The parts of a request that are sent.
#[derive(Clone, Copy, Debug)]
pub struct SentRequest {
    /// The method.
    pub method: &'static str,
    /// The path and query.
    pub target: &'static str,
    /// The headers.
    pub headers: SentHeaders,
}

const ON_LOGIN: &str = "scope: global, match: { path: ['/login'] }";
const ON_POST: &str = "scope: global, match: { methods: [POST] }";
const PER_KEY: &str = "scope: per_api_key";
const HEADER: &str = "header:X-API-Key";

const fn get(target: &'static str, headers: SentHeaders) -> SentRequest {
    SentRequest {
        method: "GET",
        target,
        headers,
    }
}

const fn path(spelled: &'static str, treatment: Treatment) -> Reading {
    Reading {
        api_key: HEADER,
        rule: ON_LOGIN,
        plain: get("/login", &[]),
        spelled: get(spelled, &[]),
        treatment,
    }
}

const fn credentials(api_key: &'static str, spelled: SentHeaders, treatment: Treatment) -> Reading {
    Reading {
        api_key,
        rule: PER_KEY,
        plain: get("/x", &[("Authorization", "Bearer KEY")]),
        spelled: get("/x", spelled),
        treatment,
    }
}

const fn cookie(spelled: SentHeaders, treatment: Treatment) -> Reading {
    Reading {
        api_key: "cookie:app_session",
        rule: PER_KEY,
        plain: get("/x", &[("Cookie", "app_session=REAL")]),
        spelled: get("/x", spelled),
        treatment,
    }
}

const fn query(spelled: &'static str, treatment: Treatment) -> Reading {
    Reading {
        api_key: "query:api_key",
        rule: PER_KEY,
        plain: get("/x?api_key=KEY", &[]),
        spelled: get(spelled, &[]),
        treatment,
    }
}

/// The cost comes from a header.
const fn cost(spelled: SentHeaders, treatment: Treatment) -> Reading {
    Reading {
        rule: "scope: per_api_key, cost: 'header:X-Cost'",
        ..header(spelled, treatment)
    }
}

/// The rule matches a header.
const fn matched(spelled: SentHeaders, treatment: Treatment) -> Reading {
    Reading {
        api_key: HEADER,
        rule: "scope: global, match: { headers: { X-Plan: free } }",
        plain: get("/x", &[("X-API-Key", "KEY"), ("X-Plan", "free")]),
        spelled: get("/x", spelled),
        treatment,
    }
}

const fn header(spelled: SentHeaders, treatment: Treatment) -> Reading {
    Reading {
        api_key: HEADER,
        rule: PER_KEY,
        plain: get("/x", &[("X-API-Key", "KEY")]),
        spelled: get("/x", spelled),
        treatment,
    }
}

/// The rule matches `POST`.
const fn method(spelled: &'static str) -> Reading {
    let plain = SentRequest {
        method: "POST",
        target: "/x",
        headers: &[],
    };
    Reading {
        api_key: HEADER,
        rule: ON_POST,
        plain,
        spelled: SentRequest {
            method: spelled,
            ..plain
        },
        treatment: Rejected,
    }
}

/// All readings.
pub const READINGS: &[Reading] = &[
    // Express, Koa, Sanic and Flask ignore a slash at the end.
    path("/login/", Counted),
    path("/login//", Counted),
    path("/%6cogin%2f", Counted),
    // CherryPy, PHP's `parse_url` and `new URL` of JavaScript take the first segment for a host.
    path("//h/login", Counted),
    path("//user@h:80/%6cogin/", Counted),
    // `$` of Starlette and PHP matches before a final line feed.
    path("/login%0a", Rejected),
    path("/login%0A/", Rejected),
    path("/login%00", Rejected),
    path("/login%7f", Rejected),
    // Bottle drops what is not UTF-8.
    path("/login%80", Rejected),
    path("/log%ffin", Rejected),
    credentials("bearer", &[("Authorization", "bearer KEY")], Counted),
    credentials("bearer", &[("Authorization", "bEarer   KEY")], Counted),
    credentials("bearer", &[("Authorization", "Bearer\tKEY")], Counted),
    credentials("bearer", &[("Authorization", "Bearer KEY x")], Rejected),
    credentials("bearer", &[("Authorization", "Bearer \u{a0}KEY")], Rejected),
    credentials(
        "header:Authorization",
        &[("Authorization", "bEARER  KEY")],
        Counted,
    ),
    credentials(
        "header:Authorization",
        &[("Authorization", "Bearer KEY 1")],
        Rejected,
    ),
    credentials(
        "header:Authorization",
        &[("Authorization", "Bearer\u{a0}KEY")],
        Rejected,
    ),
    credentials(
        "bearer",
        &[("Authorization", "\u{3000}Bearer KEY")],
        Rejected,
    ),
    credentials(
        "header:Authorization",
        &[("Authorization", "=?utf-8?q?Bearer_KEY?=")],
        Rejected,
    ),
    // aiohttp and Bottle separate cookies by white space.
    cookie(
        &[("Cookie", "app_session=RAND; a=b app_session=REAL")],
        Rejected,
    ),
    cookie(&[("Cookie", "app_session=REAL x1")], Rejected),
    cookie(
        &[("Cookie", "app_session=RAND; a=b,app_session=REAL")],
        Rejected,
    ),
    cookie(
        &[("Cookie", "app_session=RAND; a=\"b\"app_session=REAL")],
        Rejected,
    ),
    // FastAPI, Tornado and Express drop a U+00A0 before a name.
    cookie(&[("Cookie", "\u{a0}app_session=REAL")], Rejected),
    cookie(
        &[("Cookie", "app_session=RAND; \u{a0}app_session=REAL")],
        Rejected,
    ),
    cookie(&[("Cookie", "app_session=REAL%20")], Rejected),
    cookie(&[("Cookie", "app_session=%52EAL")], Counted),
    // Express reads JSON behind `j:`.
    cookie(&[("Cookie", "app_session=j%3A%22REAL%22")], Rejected),
    // PHP.
    cookie(&[("Cookie", "app.session=REAL")], Rejected),
    cookie(
        &[("Cookie", "app_session=RAND; app[session=REAL")],
        Rejected,
    ),
    cookie(&[("Cookie", "app%5fsession=REAL")], Rejected),
    // Servers drop, replace or keep bytes that are not UTF-8.
    cookie(&[("Cookie", "app_session=REAL%ff")], Rejected),
    // Some servers end a value at white space or a comma, in quotes too.
    cookie(&[("Cookie", "app_session=\"REAL x\"")], Rejected),
    cookie(&[("Cookie", "app_session=\"REAL,x\"")], Rejected),
    query("/x?+api_key=KEY", Rejected),
    query("/x?api.key=KEY", Rejected),
    query("/x?api_key=RAND&api.key=KEY", Rejected),
    query("/x?api[key=KEY", Rejected),
    query("/x?api_key%00=KEY", Rejected),
    query("/x?api_key%00z=KEY", Rejected),
    query("/x?api_key[]=KEY", Rejected),
    query("/x?api_key[0]=KEY", Rejected),
    query("/x?api_k%01ey=KEY", Rejected),
    query("/x?api_k%01ey[0]=KEY", Rejected),
    query("/x?api_k%01ey%00z=KEY", Rejected),
    query("/x??api_key=KEY", Rejected),
    query("/x?x;api_key=KEY", Rejected),
    query("/x?api%5fkey=KEY", Counted),
    // Tornado strips values.
    query("/x?api_key=KEY%0a", Rejected),
    query("/x?api_key=KEY%c2%a0", Rejected),
    query("/x?api_key=+KEY", Rejected),
    query("/x?api_key=KEY%ff", Rejected),
    query("/x?api_key=K%80EY", Rejected),
    // CGI.
    header(&[("X_API_Key", "KEY")], Removed),
    header(&[("X.API.Key", "KEY")], Removed),
    header(&[("X-API-Key", "RAND"), ("X~API~Key", "KEY")], Removed),
    header(
        &[("X-API-Key", "RAND"), ("X.Forwarded.For", "192.0.2.9")],
        Removed,
    ),
    header(
        &[("X-API-Key", "RAN2"), ("X.Original.URL", "/y")],
        RemovedByProxies,
    ),
    header(
        &[("X-API-Key", "RAN3"), ("x_forwarded_host", "y")],
        RemovedByProxies,
    ),
    header(&[("X-API-Key", "KEY\u{a0}")], Rejected),
    // CherryPy decodes encoded words.
    header(&[("X-API-Key", "=?utf-8?q?=4BEY?=")], Rejected),
    header(&[("X-API-Key", "RAND"), ("X-API-Key", "KEY")], Rejected),
    // Servers differ in which of two lines they take.
    cost(
        &[("X-API-Key", "RAND"), ("X-Cost", "1"), ("X-Cost", "9")],
        Rejected,
    ),
    cost(&[("X-API-Key", "RAND"), ("X-Cost", "1\u{a0}")], Rejected),
    cost(
        &[("X-API-Key", "RAND"), ("X-Cost", "=?utf-8?q?9?=")],
        Rejected,
    ),
    cost(&[("X-API-Key", "RAND"), ("X_Cost", "9")], Removed),
    matched(
        &[("X-API-Key", "KEY"), ("X-Plan", "paid"), ("X-Plan", "free")],
        Rejected,
    ),
    matched(&[("X-API-Key", "KEY"), ("X-Plan", "free\u{a0}")], Rejected),
    matched(
        &[("X-API-Key", "KEY"), ("X-Plan", "=?utf-8?q?free?=")],
        Rejected,
    ),
    matched(&[("X-API-Key", "RAND"), ("X_Plan", "free")], Removed),
    // Hypercorn and Flask do not distinguish `post` from `POST`.
    method("post"),
    method("Post"),
];
