//! Requests that some servers read as another request. Each was seen with a real framework.

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
    /// What must happen to it.
    pub treatment: Treatment,
}

/// What must happen to a spelling after the plain request has used the limit up.
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

/// The parts of a request that are sent.
#[derive(Clone, Copy, Debug)]
pub struct SentRequest {
    /// The method.
    pub method: &'static str,
    /// The path and query.
    pub target: &'static str,
    /// The headers.
    pub headers: &'static [(&'static str, &'static str)],
}

const ON_LOGIN: &str = "scope: global, match: { path: ['/login'] }";
const ON_POST: &str = "scope: global, match: { methods: [POST] }";
const PER_KEY: &str = "scope: per_api_key";
const HEADER: &str = "header:X-API-Key";

const fn get(
    target: &'static str,
    headers: &'static [(&'static str, &'static str)],
) -> SentRequest {
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

const fn credentials(
    api_key: &'static str,
    spelled: &'static [(&'static str, &'static str)],
    treatment: Treatment,
) -> Reading {
    Reading {
        api_key,
        rule: PER_KEY,
        plain: get("/x", &[("Authorization", "Bearer KEY")]),
        spelled: get("/x", spelled),
        treatment,
    }
}

const fn cookie(spelled: &'static [(&'static str, &'static str)], treatment: Treatment) -> Reading {
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
const fn cost(spelled: &'static [(&'static str, &'static str)], treatment: Treatment) -> Reading {
    Reading {
        rule: "scope: per_api_key, cost: 'header:X-Cost'",
        ..header(spelled, treatment)
    }
}

/// The rule matches a header.
const fn matched(
    spelled: &'static [(&'static str, &'static str)],
    treatment: Treatment,
) -> Reading {
    Reading {
        api_key: HEADER,
        rule: "scope: global, match: { headers: { X-Plan: free } }",
        plain: get("/x", &[("X-API-Key", "KEY"), ("X-Plan", "free")]),
        spelled: get("/x", spelled),
        treatment,
    }
}

const fn header(spelled: &'static [(&'static str, &'static str)], treatment: Treatment) -> Reading {
    Reading {
        api_key: HEADER,
        rule: PER_KEY,
        plain: get("/x", &[("X-API-Key", "KEY")]),
        spelled: get("/x", spelled),
        treatment,
    }
}

/// All readings.
pub const READINGS: &[Reading] = &[
    // Express, Koa, Sanic and Flask ignore a slash at the end.
    path("/login/", Treatment::Counted),
    path("/login//", Treatment::Counted),
    path("/%6cogin%2f", Treatment::Counted),
    // CherryPy, PHP's `parse_url` and `new URL` of JavaScript take the first segment for a host.
    path("//h/login", Treatment::Counted),
    path("//user@h:80/%6cogin/", Treatment::Counted),
    // `$` of Starlette and PHP matches before a final line feed.
    path("/login%0a", Treatment::Rejected),
    path("/login%0A/", Treatment::Rejected),
    path("/login%00", Treatment::Rejected),
    path("/login%7f", Treatment::Rejected),
    // Bottle drops what is not UTF-8.
    path("/login%80", Treatment::Rejected),
    path("/log%ffin", Treatment::Rejected),
    credentials(
        "bearer",
        &[("Authorization", "bearer KEY")],
        Treatment::Counted,
    ),
    credentials(
        "bearer",
        &[("Authorization", "bEarer   KEY")],
        Treatment::Counted,
    ),
    credentials(
        "bearer",
        &[("Authorization", "Bearer\tKEY")],
        Treatment::Counted,
    ),
    credentials(
        "bearer",
        &[("Authorization", "Bearer KEY x")],
        Treatment::Rejected,
    ),
    credentials(
        "bearer",
        &[("Authorization", "Bearer \u{a0}KEY")],
        Treatment::Rejected,
    ),
    credentials(
        "header:Authorization",
        &[("Authorization", "bEARER  KEY")],
        Treatment::Counted,
    ),
    credentials(
        "header:Authorization",
        &[("Authorization", "Bearer KEY 1")],
        Treatment::Rejected,
    ),
    credentials(
        "header:Authorization",
        &[("Authorization", "Bearer\u{a0}KEY")],
        Treatment::Rejected,
    ),
    credentials(
        "bearer",
        &[("Authorization", "\u{3000}Bearer KEY")],
        Treatment::Rejected,
    ),
    credentials(
        "header:Authorization",
        &[("Authorization", "=?utf-8?q?Bearer_KEY?=")],
        Treatment::Rejected,
    ),
    // aiohttp and Bottle separate cookies by white space.
    cookie(
        &[("Cookie", "app_session=RAND; a=b app_session=REAL")],
        Treatment::Rejected,
    ),
    cookie(&[("Cookie", "app_session=REAL x1")], Treatment::Rejected),
    cookie(
        &[("Cookie", "app_session=RAND; a=b,app_session=REAL")],
        Treatment::Rejected,
    ),
    cookie(
        &[("Cookie", "app_session=RAND; a=\"b\"app_session=REAL")],
        Treatment::Rejected,
    ),
    // FastAPI, Tornado and Express drop a U+00A0 before a name.
    cookie(&[("Cookie", "\u{a0}app_session=REAL")], Treatment::Rejected),
    cookie(
        &[("Cookie", "app_session=RAND; \u{a0}app_session=REAL")],
        Treatment::Rejected,
    ),
    cookie(&[("Cookie", "app_session=REAL%20")], Treatment::Rejected),
    cookie(&[("Cookie", "app_session=%52EAL")], Treatment::Counted),
    // Express reads JSON behind `j:`.
    cookie(
        &[("Cookie", "app_session=j%3A%22REAL%22")],
        Treatment::Rejected,
    ),
    // PHP.
    cookie(&[("Cookie", "app.session=REAL")], Treatment::Rejected),
    cookie(
        &[("Cookie", "app_session=RAND; app[session=REAL")],
        Treatment::Rejected,
    ),
    cookie(&[("Cookie", "app%5fsession=REAL")], Treatment::Rejected),
    // Servers drop, replace or keep bytes that are not UTF-8.
    cookie(&[("Cookie", "app_session=REAL%ff")], Treatment::Rejected),
    // Some servers end a value at white space or a comma, in quotes too.
    cookie(&[("Cookie", "app_session=\"REAL x\"")], Treatment::Rejected),
    cookie(&[("Cookie", "app_session=\"REAL,x\"")], Treatment::Rejected),
    query("/x?+api_key=KEY", Treatment::Rejected),
    query("/x?api.key=KEY", Treatment::Rejected),
    query("/x?api_key=RAND&api.key=KEY", Treatment::Rejected),
    query("/x?api[key=KEY", Treatment::Rejected),
    query("/x?api_key%00=KEY", Treatment::Rejected),
    query("/x?api_key%00z=KEY", Treatment::Rejected),
    query("/x?api_key[]=KEY", Treatment::Rejected),
    query("/x?api_key[0]=KEY", Treatment::Rejected),
    query("/x?api_k%01ey=KEY", Treatment::Rejected),
    query("/x?api_k%01ey[0]=KEY", Treatment::Rejected),
    query("/x?api_k%01ey%00z=KEY", Treatment::Rejected),
    query("/x??api_key=KEY", Treatment::Rejected),
    query("/x?x;api_key=KEY", Treatment::Rejected),
    query("/x?api%5fkey=KEY", Treatment::Counted),
    // Tornado strips values.
    query("/x?api_key=KEY%0a", Treatment::Rejected),
    query("/x?api_key=KEY%c2%a0", Treatment::Rejected),
    query("/x?api_key=+KEY", Treatment::Rejected),
    query("/x?api_key=KEY%ff", Treatment::Rejected),
    query("/x?api_key=K%80EY", Treatment::Rejected),
    // CGI.
    header(&[("X_API_Key", "KEY")], Treatment::Removed),
    header(&[("X.API.Key", "KEY")], Treatment::Removed),
    header(
        &[("X-API-Key", "RAND"), ("X~API~Key", "KEY")],
        Treatment::Removed,
    ),
    header(
        &[("X-API-Key", "RAND"), ("X.Forwarded.For", "192.0.2.9")],
        Treatment::Removed,
    ),
    header(
        &[("X-API-Key", "RAN2"), ("X.Original.URL", "/y")],
        Treatment::RemovedByProxies,
    ),
    header(
        &[("X-API-Key", "RAN3"), ("x_forwarded_host", "y")],
        Treatment::RemovedByProxies,
    ),
    header(&[("X-API-Key", "KEY\u{a0}")], Treatment::Rejected),
    // CherryPy decodes encoded words.
    header(&[("X-API-Key", "=?utf-8?q?=4BEY?=")], Treatment::Rejected),
    header(
        &[("X-API-Key", "RAND"), ("X-API-Key", "KEY")],
        Treatment::Rejected,
    ),
    // Servers differ in which of two lines they take.
    cost(
        &[("X-API-Key", "RAND"), ("X-Cost", "1"), ("X-Cost", "9")],
        Treatment::Rejected,
    ),
    cost(
        &[("X-API-Key", "RAND"), ("X-Cost", "1\u{a0}")],
        Treatment::Rejected,
    ),
    cost(
        &[("X-API-Key", "RAND"), ("X-Cost", "=?utf-8?q?9?=")],
        Treatment::Rejected,
    ),
    cost(
        &[("X-API-Key", "RAND"), ("X_Cost", "9")],
        Treatment::Removed,
    ),
    matched(
        &[("X-API-Key", "KEY"), ("X-Plan", "paid"), ("X-Plan", "free")],
        Treatment::Rejected,
    ),
    matched(
        &[("X-API-Key", "KEY"), ("X-Plan", "free\u{a0}")],
        Treatment::Rejected,
    ),
    matched(
        &[("X-API-Key", "KEY"), ("X-Plan", "=?utf-8?q?free?=")],
        Treatment::Rejected,
    ),
    matched(
        &[("X-API-Key", "RAND"), ("X_Plan", "free")],
        Treatment::Removed,
    ),
    // Hypercorn and Flask do not distinguish `post` from `POST`.
    Reading {
        api_key: HEADER,
        rule: ON_POST,
        plain: SentRequest {
            method: "POST",
            target: "/x",
            headers: &[],
        },
        spelled: SentRequest {
            method: "post",
            target: "/x",
            headers: &[],
        },
        treatment: Treatment::Rejected,
    },
    Reading {
        api_key: HEADER,
        rule: ON_POST,
        plain: SentRequest {
            method: "POST",
            target: "/x",
            headers: &[],
        },
        spelled: SentRequest {
            method: "Post",
            target: "/x",
            headers: &[],
        },
        treatment: Treatment::Rejected,
    },
];
