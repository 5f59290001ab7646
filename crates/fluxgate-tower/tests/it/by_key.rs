//! Layers on quotas, without a rule file.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use fluxgate_core::{KeyPart, Limiter, OnMissingKey, Quota, Rule};
use fluxgate_tower::{PeerAddr, RateLimitLayer};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use tower::{Layer, ServiceExt};

use crate::support::{Events, Inner, get as get_request, record_warnings, send};

/// Returns the status of a request with these headers from this address.
async fn ask(app: &Router, headers: &[(&str, &str)], peer: &str) -> u16 {
    let request = headers.iter().fold(Request::get("/x"), |request, header| {
        request.header(header.0, header.1)
    });
    let peer = PeerAddr(format!("{peer}:1").parse().unwrap());
    let request = request.extension(peer).body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    response.status().as_u16()
}

fn app(layer: RateLimitLayer<Limiter>) -> Router {
    Router::new().route("/x", get(async || "x")).layer(layer)
}

#[tokio::test]
async fn each_value_of_a_header_is_limited_by_itself() {
    let app = app(RateLimitLayer::by_header("X-Api-Key", Quota::per_hour(1)));
    let (one, two) = ([("x-api-key", "1")], [("x-api-key", "2")]);
    assert_eq!(ask(&app, &one, "10.0.0.1").await, 200);
    assert_eq!(ask(&app, &one, "10.0.0.2").await, 429);
    assert_eq!(ask(&app, &two, "10.0.0.1").await, 200);
    // Without the header, the address counts.
    assert_eq!(ask(&app, &[], "10.0.0.1").await, 200);
    assert_eq!(ask(&app, &[], "10.0.0.1").await, 429);
    assert_eq!(ask(&app, &[], "10.0.0.2").await, 200);
    // Two values could be read in two ways.
    let both = [("x-api-key", "3"), ("x-api-key", "4")];
    assert_eq!(ask(&app, &both, "10.0.0.1").await, 400);
}

#[tokio::test]
async fn each_address_is_limited_by_itself() {
    let app = app(RateLimitLayer::by_peer_ip(Quota::per_hour(1)).trusted_proxies(["10.0.0.9"]));
    assert_eq!(ask(&app, &[], "10.0.0.1").await, 200);
    assert_eq!(ask(&app, &[], "10.0.0.1").await, 429);
    let forwarded = [("x-forwarded-for", "10.0.0.2")];
    assert_eq!(ask(&app, &forwarded, "10.0.0.1").await, 429, "not trusted");
    assert_eq!(ask(&app, &forwarded, "10.0.0.9").await, 200);
    assert_eq!(ask(&app, &[], "10.0.0.2").await, 429);
}

#[tokio::test]
async fn a_function_finds_the_key() {
    let quotas = [Quota::per_hour(2), Quota::per_day(1)];
    let find = |request: &http::request::Parts| {
        let tenant = request.headers.get("x-tenant")?.to_str().ok()?;
        Some(tenant.to_lowercase())
    };
    let app = app(RateLimitLayer::by(find, quotas));
    assert_eq!(ask(&app, &[("x-tenant", "A")], "10.0.0.1").await, 200);
    assert_eq!(ask(&app, &[("x-tenant", "a")], "10.0.0.1").await, 429);
    assert_eq!(ask(&app, &[("x-tenant", "b")], "10.0.0.1").await, 200);
    assert_eq!(ask(&app, &[], "10.0.0.1").await, 200);
    assert_eq!(ask(&app, &[], "10.0.0.1").await, 429);
}

#[tokio::test]
async fn all_requests_can_be_limited_together_or_by_rules() {
    let global = app(RateLimitLayer::global(Quota::per_hour(1)));
    assert_eq!(ask(&global, &[], "10.0.0.1").await, 200);
    assert_eq!(ask(&global, &[("x-user-id", "u")], "10.0.0.2").await, 429);
    let rules = [
        Rule::new("per-user").per_user().band(Quota::per_hour(1)),
        Rule::new("all").global().band(Quota::per_hour(2)),
    ];
    let rules = app(RateLimitLayer::by_rules(rules).unwrap());
    for (user, status) in [("a", 200), ("a", 429), ("b", 200), ("c", 429)] {
        assert_eq!(
            ask(&rules, &[("x-user-id", user)], "10.0.0.1").await,
            status,
            "{user}"
        );
    }
    let invalid = RateLimitLayer::by_rules([Rule::new("r").global()]).unwrap_err();
    assert_eq!(
        invalid.to_string(),
        "layer.rules[0].bands: a rule needs `bands`"
    );
}

#[tokio::test]
async fn a_request_without_a_key_can_be_answered_by_itself() {
    let rule = Rule::new("per-token")
        .key([KeyPart::Header("authorization".into())])
        .on_missing_key(OnMissingKey::Deny)
        .band(Quota::per_hour(1));
    let layer = RateLimitLayer::by_rules([rule]).unwrap();
    let app = app(layer.on_denied(|_, denial| {
        let mut response = Response::new("denied");
        *response.status_mut() = if denial.missing_key() {
            StatusCode::UNAUTHORIZED
        } else {
            denial.status()
        };
        response
    }));
    let token = [("authorization", "Bearer 1")];
    assert_eq!(ask(&app, &token, "10.0.0.1").await, 200);
    assert_eq!(ask(&app, &token, "10.0.0.1").await, 429);
    assert_eq!(ask(&app, &[], "10.0.0.1").await, 401);
}

#[tokio::test]
async fn a_layer_can_require_its_key() {
    let by_header = || RateLimitLayer::by_header("x-api-key", Quota::per_hour(1)).require_key();
    let find = |request: &http::request::Parts| {
        let key = request.headers.get("x-api-key")?.to_str().ok()?;
        Some(key.to_owned())
    };
    for layer in [
        by_header(),
        RateLimitLayer::by(find, Quota::per_hour(1)).require_key(),
    ] {
        let app = app(layer);
        let key = [("x-api-key", "1")];
        assert_eq!(ask(&app, &key, "10.0.0.1").await, 200);
        assert_eq!(ask(&app, &key, "10.0.0.2").await, 429);
        for _ in 0..3 {
            assert_eq!(ask(&app, &[], "10.0.0.1").await, 401);
            assert_eq!(ask(&app, &[("x-api-key", "")], "10.0.0.1").await, 401);
        }
    }

    let service = by_header().layer(Inner::new(&Events::default()));
    let got = send(&service, get_request("/x")).await;
    let headers = [got.header("content-type"), got.header("retry-after")];
    assert_eq!(headers, [Some("application/problem+json"), None]);
    assert_eq!(
        got.body,
        r#"{"type":"about:blank","title":"Unauthorized","status":401,"detail":"the request lacks the key that it is limited by"}"#
    );
    let mut grpc = get_request("/x");
    let content_type = HeaderValue::from_static("application/grpc");
    grpc.headers_mut().insert(CONTENT_TYPE, content_type);
    let got = send(&service, grpc).await;
    assert_eq!((got.status, got.header("grpc-status")), (200, Some("16")));

    let own = by_header().on_denied(|_, denial| {
        let mut response = Response::new(format!("{}", denial.missing_key()));
        *response.status_mut() = denial.status();
        response
    });
    let got = send(
        &own.layer(Inner::new(&Events::default())),
        get_request("/x"),
    )
    .await;
    assert_eq!((got.status, &*got.body), (401, "true"));
}

#[test]
#[should_panic(expected = "`require_key` is for layers of `by` and `by_header`")]
fn an_address_cannot_be_required() {
    let _ = RateLimitLayer::by_peer_ip(Quota::per_hour(1)).require_key();
}

#[tokio::test]
async fn a_client_without_an_address_is_logged_once_if_it_counts() {
    let warnings = Events::default();
    let _guard = record_warnings(&warnings);
    let quota = Quota::per_hour(100);
    let user = |on_missing| {
        let rule = Rule::new("per-user").per_user().on_missing_key(on_missing);
        RateLimitLayer::by_rules([rule.band(quota)]).unwrap()
    };
    let own_address = RateLimitLayer::by_peer_ip(quota)
        .customize(|context, _| context.ip(std::net::Ipv4Addr::LOCALHOST));
    let known_peer =
        RateLimitLayer::by_peer_ip(quota).peer(|_| Some(std::net::Ipv4Addr::LOCALHOST.into()));
    for (layer, count) in [
        (RateLimitLayer::by_peer_ip(quota), 1),
        (RateLimitLayer::by_header("x-api-key", quota), 1),
        (user(OnMissingKey::Ip), 1),
        (user(OnMissingKey::Anonymous), 0),
        (RateLimitLayer::global(quota), 0),
        (own_address, 0),
        (known_peer, 0),
    ] {
        let service = layer.layer(Inner::new(&Events::default()));
        for _ in 0..3 {
            assert_eq!(send(&service, get_request("/x")).await.status, 200);
        }
        // Another service of the same layer.
        let another = layer.clone().layer(Inner::new(&Events::default()));
        assert_eq!(send(&another, get_request("/x")).await.status, 200);
        let warnings = warnings.take();
        assert_eq!(warnings.len(), count, "{warnings:?}");
        let start = "no address of the client: ";
        assert!(warnings.iter().all(|warning| warning.starts_with(start)));
    }
}

#[test]
#[should_panic(expected = "`a b` cannot be the name of a header")]
fn a_header_must_have_a_name() {
    let _ = RateLimitLayer::by_header("a b", Quota::per_hour(1));
}
