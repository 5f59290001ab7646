//! Paths and headers that servers may read in different ways.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fluxgate_testkit::readings::{READINGS, SentRequest, Treatment};
use fluxgate_tower::{Identity, RateLimitLayer, Source};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use serde_json::{Value, json};
use tower::Layer;
use tower::util::service_fn;

use crate::support::{Events, Got, Inner, get, limiter, send};

/// Spellings of `/api/x`.
const SPELLINGS: [&str; 11] = [
    "/%61pi/x",
    "//api/x",
    "/api;v=1/x",
    "/api%3bv=1/x",
    "/api%2fx",
    "/api\\x",
    "/api%5Cx",
    "/api//x",
    "/api/x/",
    "/api%2fx//",
    "http://h/%61pi/x",
];

const ON_API: &str = "{ id: r, scope: per_user, match: { path: [\"/api/**\"] }, bands: [ { capacity: 1, window: 1h } ] }";

fn request(uri: &str, headers: &[(&str, &[u8])]) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = Uri::try_from(uri).unwrap();
    for (name, value) in headers {
        let name = HeaderName::try_from(*name).unwrap();
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(name, value);
    }
    request
}

fn assert_bad_request(got: &Got) {
    assert_eq!(got.status, 400);
    assert_eq!(got.header("content-type"), Some("application/problem+json"));
    let length = got.body.len().to_string();
    assert_eq!(got.header("content-length"), Some(&*length));
    let body: Value = serde_json::from_str(&got.body).unwrap();
    let known = json!([body["type"], body["title"], body["status"]]);
    assert_eq!(known, json!(["about:blank", "Bad Request", 400]));
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.starts_with("the request is ambiguous: "), "{detail}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_on_a_path_holds_for_every_spelling() {
    let events = Events::default();
    let layer = RateLimitLayer::new(limiter(ON_API)).rule_set("s");
    let service = layer.layer(Inner::new(&events));
    for (index, spelling) in SPELLINGS.into_iter().enumerate() {
        let status = async |uri: &str, user: &str| {
            let user = format!("{user}{index}");
            let asked = request(uri, &[("x-user-id", user.as_bytes())]);
            send(&service, asked).await.status
        };
        assert_eq!(status(spelling, "a").await, 200, "{spelling}");
        // The inner service receives the path as it was sent.
        let raw = spelling.strip_prefix("http://h").unwrap_or(spelling);
        assert_eq!(events.take(), [format!("{raw} at 0")]);
        assert_eq!(status("/api/x", "a").await, 429, "{spelling}");
        assert_eq!(status("/api/x", "b").await, 200);
        assert_eq!(status(spelling, "b").await, 429, "{spelling}");
        events.take();
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_is_included_by_either_form_and_excluded_by_both() {
    let rules = "{ id: r, key: [path], match: { not_path: [/api/free] }, bands: [ { capacity: 1, window: 1h } ] }";
    let service = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .include(["/api/**"])
        .exclude(["/api/health", "/api/live"])
        .layer(Inner::new(&Events::default()));
    for (path, is_limited) in [
        ("/api/a", true),
        ("/%61pi/b", true),
        ("/other", false),
        ("/%6fther", false),
        ("/api/health", false),
        ("/api/health;x", true),
        ("/api/live/", true),
        ("/api/free", false),
        ("/api/fre%65", true),
    ] {
        let got = send(&service, get(path)).await;
        assert_eq!(got.status, 200, "{path}");
        assert_eq!(got.header("ratelimit").is_some(), is_limited, "{path}");
    }
    // All spellings of a path share a bucket.
    for path in ["/%61pi/a", "/api/b", "/api//a", "/api/a;x"] {
        assert_eq!(send(&service, get(path)).await.status, 429, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn dot_segments_in_either_form_are_rejected() {
    let events = Events::default();
    let layer = RateLimitLayer::new(limiter(ON_API)).include(["/api/**"]);
    let service = layer.clone().rule_set("s").layer(Inner::new(&events));
    let rejected = [
        "/x/../api/x",
        "/x/%2e%2e/api/x",
        "/x/.%2E/api/x",
        "/x/..;/api/x",
        "/.;x/api/x",
        "/x%2f..%2fapi/x",
        "/x\\..\\api/x",
        "/x/.",
        "/a%00",
        "/api/x%0a",
        "/api/x%80",
        "/api;%2fy/x",
    ];
    for path in rejected {
        assert_bad_request(&send(&service, get(path)).await);
    }
    assert_eq!(events.count(), 0);
    let mut asked = get("/x/../api/x");
    let grpc = HeaderValue::from_static("application/grpc");
    asked.headers_mut().insert("content-type", grpc);
    let got = send(&service, asked).await;
    assert_eq!((got.status, got.header("grpc-status")), (200, Some("3")));
    assert!(got.header("grpc-message").is_some());
    assert_eq!(events.count(), 0);
    // Without rules there is no limit to evade.
    let service = layer.layer(Inner::new(&events));
    assert_eq!(send(&service, get("/x/../api/x")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn targets_other_than_paths_are_limited() {
    let rules = "{ id: r, scope: per_user, bands: [ { capacity: 1, window: 1h } ] }";
    let service = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .layer(Inner::new(&Events::default()));
    let targets = [
        (Method::OPTIONS, "*"),
        (Method::CONNECT, "h:80"),
        (Method::GET, "h:80"),
        (Method::GET, "http://h"),
    ];
    for (index, (method, target)) in targets.into_iter().enumerate() {
        for expected in [200, 429] {
            let user = format!("u{index}");
            let mut asked = request(target, &[("x-user-id", user.as_bytes())]);
            *asked.method_mut() = method.clone();
            assert_eq!(send(&service, asked).await.status, expected, "{target}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_sees_only_headers_that_were_counted() {
    let rules = "{ id: r, scope: per_user, bands: [ { capacity: 1, window: 1h } ] }, \
                 { id: t, key: [\"header:X-Tenant\"], on_missing_key: skip, on_exceed: wait, max_wait: 2h, \
                   bands: [ { capacity: 1, window: 1h } ] }";
    let seen: Arc<Mutex<HeaderMap>> = Arc::default();
    let service = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .exclude(["/free"])
        .layer(service_fn({
            let seen = Arc::clone(&seen);
            move |request: Request<Full<Bytes>>| {
                *seen.lock().unwrap() = request.headers().clone();
                std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
            }
        }));
    let ask = async |path: &str, headers: &[(&str, &[u8])]| {
        let got = send(&service, request(path, headers)).await;
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        let seen = seen.iter().map(|(name, value)| {
            let value = value.as_bytes().escape_ascii();
            format!("{name}: {value}")
        });
        let mut seen: Vec<_> = seen.collect();
        seen.sort();
        (got.status, seen)
    };
    let variants: [(&str, &[u8]); 4] = [
        ("x_user_id", b"b"),
        ("x_tenant", b"b"),
        ("x_forwarded_for", b"1.1.1.1"),
        ("x_api-key", b"b"),
    ];
    let with = |more: &[(&'static str, &'static [u8])]| [&variants[..], more].concat();
    let (status, seen) = ask("/x", &with(&[("x-user-id", b"a"), ("x_other", b"c")])).await;
    assert_eq!(
        (status, seen),
        (200, vec!["x-user-id: a".into(), "x_other: c".into()])
    );
    // A variant alone identifies no user.
    let (status, seen) = ask("/x", &variants).await;
    assert_eq!((status, seen), (200, vec![]));
    assert_eq!(ask("/x", &variants).await.0, 429);
    // Variants are removed from delayed requests too.
    let tenant = |user: &'static [u8]| with(&[("x-user-id", user), ("x-tenant", b"t")]);
    for user in [b"w", b"v"] {
        let (status, seen) = ask("/x", &tenant(user)).await;
        assert_eq!((status, seen.len()), (200, 2), "{seen:?}");
    }
    // Requests that are not limited are left unchanged.
    assert_eq!(ask("/free", &variants).await.1.len(), 4);

    let twice =
        |name: &'static str, one: &'static [u8], other: &'static [u8]| [(name, one), (name, other)];
    for name in ["x-user-id", "x-api-key", "x-tenant"] {
        let (status, seen) = ask("/x", &twice(name, b"d", b"e")).await;
        assert_eq!((status, seen), (400, vec![]), "{name}");
    }
    assert_bad_request(&send(&service, request("/x", &twice("x-user-id", b"d", b"e"))).await);
    let (status, seen) = ask("/x", &twice("x-user-id", b"d", b"d")).await;
    assert_eq!((status, seen), (200, vec!["x-user-id: d".into()]));
    // Users whose names are not UTF-8 have their own limits.
    for user in [&b"jos\xe9"[..], b"jos\xe8"] {
        let statuses = [
            ask("/x", &[("x-user-id", user)]).await.0,
            ask("/x", &[("x-user-id", user)]).await.0,
        ];
        assert_eq!(statuses, [200, 429]);
    }
}

#[tokio::test(start_paused = true)]
async fn patterns_may_be_compared_without_case() {
    let rule = "{ id: r, scope: global, match: { path: [/Login], not_path: [/LOGIN/x] }, bands: [ { capacity: 1, window: 1h } ] }";
    let layer = RateLimitLayer::new(limiter(rule))
        .rule_set("s")
        .ignore_case(true);
    let layer = layer.include(["/log*", "/log*/**"]).exclude(["/LOGINS"]);
    let service = layer.layer(Inner::new(&Events::default()));
    for (path, status) in [
        ("/logins", 200),
        ("/lOgInS", 200),
        ("/login/", 200),
        ("/LOGIN", 429),
        ("/%4cOGIN", 429),
    ] {
        assert_eq!(send(&service, get(path)).await.status, status, "{path}");
    }
}

/// The rule set `s` has the limit of a reading.
#[tokio::test(start_paused = true)]
async fn the_layer_counts_what_frameworks_read() {
    for reading in READINGS {
        let seen: Arc<Mutex<HeaderMap>> = Arc::default();
        let rule = format!(
            "{{ id: r, bands: [ {{ capacity: 1, window: 1h }} ], {} }}",
            reading.rule
        );
        let api_key: Source = reading.api_key.parse().unwrap();
        let layer = RateLimitLayer::new(limiter(&rule)).rule_set("s");
        let layer = layer.identity(Identity::default().api_key(api_key));
        let service = layer.layer(service_fn({
            let seen = Arc::clone(&seen);
            move |request: Request<Full<Bytes>>| {
                *seen.lock().unwrap() = request.headers().clone();
                std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
            }
        }));
        let ask = async |sent: &SentRequest| {
            let headers = sent.headers.iter();
            let headers: Vec<_> = headers.map(|(name, it)| (*name, it.as_bytes())).collect();
            let mut asked = request(sent.target, &headers);
            *asked.method_mut() = Method::from_bytes(sent.method.as_bytes()).unwrap();
            send(&service, asked).await.status
        };
        assert_eq!(ask(&reading.plain).await, 200, "{reading:?}");
        seen.lock().unwrap().clear();
        let status = ask(&reading.spelled).await;
        match reading.treatment {
            Treatment::Counted => assert_eq!(status, 429, "{reading:?}"),
            Treatment::Rejected => assert_eq!(status, 400, "{reading:?}"),
            Treatment::Removed => {
                assert_eq!(status, 200, "{reading:?}");
                let (name, _) = reading.spelled.headers.last().unwrap();
                assert_eq!(seen.lock().unwrap().get(*name), None, "{reading:?}");
            }
            // The layer does not write the headers of proxies.
            Treatment::RemovedByProxies => assert_eq!(status, 200, "{reading:?}"),
        }
    }
}
