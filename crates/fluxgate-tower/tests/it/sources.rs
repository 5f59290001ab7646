//! Identities and attributes from headers, query parameters and cookies.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fluxgate_tower::{Identity, RateLimitLayer, Source};
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use tower::Layer;
use tower::util::service_fn;

use crate::support::{Events, Inner, limiter, send};

/// Requests without a value are left unlimited, so that each test sees which ones have it.
fn one_an_hour(key: &str) -> String {
    format!(
        "{{ id: r, key: [{key}], on_missing_key: skip, bands: [ {{ capacity: 1, window: 1h }} ] }}"
    )
}

fn request(target: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let request = Request::get(target);
    let request = headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    request.body(Full::default()).unwrap()
}

/// The table of `docs/security.md`: requests of honest clients that are refused, and the same
/// requests once its advice is followed.
#[tokio::test(start_paused = true)]
async fn honest_requests_that_are_refused_have_a_remedy() {
    let rule = "{ id: r, scope: per_user, match: { headers: { X-Plan: free } }, bands: [ { capacity: 9, window: 1h } ] }";
    for (user, refused, allowed) in [
        (
            "query:uid",
            ("patch", "/x?uid=1", &[][..]),
            ("PATCH", "/x?uid=1", &[][..]),
        ),
        (
            "query:uid",
            ("GET", "/x?_uid=1&uid=2", &[]),
            ("GET", "/x?other=1&uid=2", &[]),
        ),
        (
            "cookie:token",
            ("GET", "/x", &[("cookie", "back=/x?token=1; token=2")]),
            ("GET", "/x", &[("cookie", "back=/x?token%3D1; token=2")]),
        ),
        (
            "cookie:session",
            ("GET", "/x", &[("cookie", "express:session=1; session=2")]),
            ("GET", "/x", &[("cookie", "express_session=1; session=2")]),
        ),
        (
            "header:X-User-Id",
            ("GET", "/x", &[("x-plan", "free"), ("x-plan", "paid")]),
            ("GET", "/x", &[("x-plan", "free")]),
        ),
        (
            "cookie:token",
            ("GET", "/x", &[("cookie", "token=\"a b\"")]),
            ("GET", "/x", &[("cookie", "token=a%20b")]),
        ),
    ] {
        let user: Source = user.parse().unwrap();
        let service = RateLimitLayer::new(limiter(rule))
            .rule_set("s")
            .identity(Identity::default().user(user))
            .layer(Inner::new(&Events::default()));
        for ((method, target, headers), status) in [(refused, 400), (allowed, 200)] {
            let mut asked = request(target, headers);
            *asked.method_mut() = method.parse().unwrap();
            let got = send(&service, asked).await.status;
            assert_eq!(got, status, "{method} {target} {headers:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn users_and_api_keys_may_come_from_queries_and_cookies() {
    let rules = [
        one_an_hour("user"),
        one_an_hour("api_key").replace("id: r", "id: k"),
    ];
    let identity = Identity::default()
        .user(Source::query("user id"))
        .api_key(Source::cookie("key"));
    let events = Events::default();
    let service = RateLimitLayer::new(limiter(&rules.join(", ")))
        .rule_set("s")
        .identity(identity)
        .layer(Inner::new(&events));
    for (target, headers, status) in [
        ("/x?user+id=ann", &[][..], 200),
        // Another spelling of the same user.
        ("/x?a=b&user%20id=%61nn", &[], 429),
        ("/x?user+id=ann&user%20id=ann", &[], 429),
        ("/x?user+id=bob", &[], 200),
        ("/x", &[("cookie", "a=b; key=k1")], 200),
        // HTTP/2 may send each cookie in a line of its own.
        ("/x", &[("cookie", "a=b"), ("cookie", "key=\"k1\"")], 429),
        ("/x", &[("cookie", "key=k2; key=k2")], 200),
        // Values that differ.
        ("/x?user+id=eve&user+id=mallory", &[], 400),
        ("/x?user+id=&user+id=eve", &[], 400),
        ("/x", &[("cookie", "key=k3; key=k4")], 400),
        ("/x", &[("cookie", "key=k3"), ("cookie", "key=k4")], 400),
        // No value, an empty one, and sources that are no longer read.
        ("/x", &[], 200),
        ("/x?user+id=&user", &[("cookie", "key=; k=1")], 200),
        ("/x?user+id=", &[("cookie", "key=\"\"")], 200),
        ("/x", &[("x-user-id", "ann"), ("x-user-id", "bob")], 200),
    ] {
        let got = send(&service, request(target, headers)).await;
        assert_eq!(got.status, status, "{target} {headers:?}");
        assert_eq!(events.take().len(), usize::from(status == 200));
    }
}

#[tokio::test(start_paused = true)]
async fn attributes_come_from_their_sources() {
    let rules = "{ id: r, key: [\"attr:tenant\", \"attr:shard\"], match: { attributes: { plan: free } }, \
                 on_missing_key: skip, bands: [ { capacity: 1, window: 1h } ] }";
    let service = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .attribute("tenant", Source::cookie("replaced"))
        .attribute("tenant", Source::header("X-Tenant"))
        .attribute("plan", Source::query("plan"))
        .attribute("shard", Source::cookie("shard"))
        .customize(|context, request| match request.uri.path() {
            "/vip" => context.attribute("plan", "vip"),
            _ => context,
        })
        .layer(Inner::new(&Events::default()));
    let headers = [("x-tenant", "acme"), ("cookie", "shard=1")];
    for (target, headers, status) in [
        ("/x?plan=free", &headers[..], 200),
        ("/x?plan=free", &headers, 429),
        // A customizer may change an attribute.
        ("/vip?plan=free", &headers, 200),
        ("/x?plan=pro", &headers, 200),
        ("/x", &headers, 200),
        (
            "/x?plan=free",
            &[("x-tenant", "acme"), ("cookie", "shard=2")],
            200,
        ),
        (
            "/x?plan=free",
            &[("x-tenant", "globex"), ("cookie", "shard=1")],
            200,
        ),
        ("/x?plan=free", &[("x-tenant", "acme")], 200),
        ("/x?plan=free", &[("cookie", "replaced=acme; shard=1")], 200),
        ("/x?plan=free&plan=pro", &headers, 400),
        (
            "/x?plan=free",
            &[("x-tenant", "acme"), ("x-tenant", "globex")],
            400,
        ),
        ("/x", &[("cookie", "shard=1; shard=2")], 400),
    ] {
        let got = send(&service, request(target, headers)).await;
        assert_eq!(got.status, status, "{target} {headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_sees_one_line_and_no_variant_of_a_source() {
    let seen: Arc<Mutex<HeaderMap>> = Arc::default();
    let service = RateLimitLayer::new(limiter(&one_an_hour("\"attr:tenant\"")))
        .rule_set("s")
        .attribute("tenant", Source::header("X-Tenant-Id"))
        .attribute("session", Source::cookie("session"))
        .layer(service_fn({
            let seen = Arc::clone(&seen);
            move |request: Request<Full<Bytes>>| {
                *seen.lock().unwrap() = request.headers().clone();
                std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
            }
        }));
    let headers = [
        ("x-tenant-id", "a"),
        ("x-tenant-id", "a"),
        ("x_tenant-id", "b"),
        ("x_tenant_id", "c"),
        ("x-tenant", "d"),
        ("cookie", "session=1"),
        ("cookie", "session=1"),
    ];
    assert_eq!(send(&service, request("/x", &headers)).await.status, 200);
    let seen = seen.lock().unwrap();
    let seen = seen.iter().map(|(name, value)| {
        let value = value.to_str().unwrap();
        format!("{name}: {value}")
    });
    let mut seen: Vec<_> = seen.collect();
    seen.sort();
    let expected = [
        "cookie: session=1",
        "cookie: session=1",
        "x-tenant-id: a",
        "x-tenant: d",
    ];
    assert_eq!(seen, expected);
}
