//! Denials that are answered by a function of the program.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::Outcome;
use fluxgate_tower::{Denial, HeaderFamilies, MakeBody, RateLimitLayer, ResetFormat};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::Instant;
use tower::Layer;

use crate::layer::failing_closed;
use crate::support::{Events, Got, Inner, TestLimiter, get, limiter, send};

const ONE_A_MINUTE: &str =
    "{ id: per-user, scope: per_user, bands: [ { id: b, capacity: 1, window: 1m } ] }";

/// Answers 418 with this body.
fn teapot<B>(body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::IM_A_TEAPOT;
    response
}

/// Sends a request that is allowed and one that is denied, and returns the second response.
async fn denied<K>(layer: RateLimitLayer<TestLimiter, K>) -> Got
where
    K: MakeBody<Full<Bytes>>,
    K::Body: http_body::Body<Data = Bytes, Error = Infallible>,
{
    let events = Events::default();
    let service = layer.rule_set("s").layer(Inner::new(&events));
    let allowed = send(&service, get("/x")).await;
    assert_eq!((allowed.status, &*allowed.body), (200, "inner"));
    let denied = send(&service, get("/x")).await;
    assert_eq!(events.count(), 1, "a denied request is not forwarded");
    denied
}

#[tokio::test(start_paused = true)]
async fn a_function_answers_with_any_body_that_becomes_bytes() {
    const EXPECTED: &str = "no /x";
    let layer = || RateLimitLayer::new(limiter(ONE_A_MINUTE));
    let path = |request: &Parts| format!("no {}", request.uri.path());
    for got in [
        denied(layer().on_denied(move |request, _| teapot(path(request)))).await,
        denied(layer().on_denied(|_, _| teapot(EXPECTED))).await,
        denied(layer().on_denied(|_, _| teapot(Bytes::from_static(EXPECTED.as_bytes())))).await,
        denied(layer().on_denied(|_, _| teapot(EXPECTED.as_bytes().to_vec()))).await,
        denied(layer().on_denied(|_, _| teapot(EXPECTED)).same_body()).await,
        denied(layer().same_body().on_denied(|_, _| teapot(EXPECTED))).await,
    ] {
        assert_eq!((got.status, &*got.body), (418, EXPECTED));
        assert_eq!(got.header("content-type"), None);
        assert_eq!(got.header("content-length"), Some("5"));
        assert_eq!(got.header("retry-after"), Some("60"));
        assert_eq!(got.header("x-ratelimit-limit"), Some("1"));
        let policy = "\"per-user/b\";q=1;w=60";
        assert_eq!(got.header("ratelimit-policy"), Some(policy));
        assert_eq!(got.header("ratelimit"), Some("\"per-user/b\";r=0;t=60"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_headers_of_the_function_win() {
    let layer = RateLimitLayer::new(limiter(ONE_A_MINUTE))
        .headers(HeaderFamilies {
            ietf: false,
            reset: ResetFormat::Delta,
            ..HeaderFamilies::default()
        })
        .on_denied(|_, _| {
            let mut response = teapot("");
            let headers = response.headers_mut();
            for (name, value) in [
                ("retry-after", "7"),
                ("x-ratelimit-limit", "many"),
                ("content-length", "9"),
            ] {
                headers.insert(name, HeaderValue::from_static(value));
            }
            response
        });
    let got = denied(layer).await;
    let expected = [
        ("content-length", "0"),
        ("retry-after", "7"),
        ("x-ratelimit-limit", "many"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "60"),
    ];
    for (name, value) in expected {
        assert_eq!(got.header(name), Some(value), "{name}");
    }
    assert_eq!(got.headers.len(), expected.len(), "{:?}", got.headers);

    let layer = RateLimitLayer::new(limiter(ONE_A_MINUTE)).on_denied(|_, _| {
        let mut response = Response::new("");
        *response.status_mut() = StatusCode::NO_CONTENT;
        response
    });
    let got = denied(layer).await;
    assert_eq!((got.status, got.header("content-length")), (204, None));
}

/// The denials that a function got.
type Denials = Arc<Mutex<Vec<Denial>>>;

/// Creates a function that records its denials and answers with the default status.
fn record(denials: &Denials) -> impl Fn(&Parts, &Denial) -> Response<&'static str> + use<> {
    let denials = Arc::clone(denials);
    move |_, denial| {
        denials.lock().unwrap().push(denial.clone());
        let mut response = Response::new("denied");
        *response.status_mut() = denial.status();
        response
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_describes_the_decision() {
    let rules = "{ id: r, scope: per_user, on_missing_key: deny, cost: \"header:x-cost\", \
                 bands: [ { id: few, capacity: 2, window: 1h }, { id: many, capacity: 10, window: 1h } ] }";
    let denials = Denials::default();
    let service = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .on_denied(record(&denials))
        .layer(Inner::new(&Events::default()));
    let ask = async |user: &'static str, cost: &'static str| {
        let request = Request::get("/x").header("x-cost", cost);
        let request = request.header("x-user-id", user).body(Full::default());
        let got = send(&service, request.unwrap()).await;
        (got.status, denials.lock().unwrap().pop())
    };
    let violated = |denial: &Denial| -> Vec<(String, String)> {
        let violated = denial.violated();
        violated
            .map(|(rule, band)| (rule.into(), band.into()))
            .collect()
    };
    let few = [("r".to_owned(), "few".to_owned())];
    assert!(matches!(ask("ann", "1").await, (200, None)));

    let (status, denial) = ask("ann", "2").await;
    let denial = denial.unwrap();
    assert_eq!((status, denial.status().as_u16()), (429, 429));
    assert_eq!(denial.outcome(), Outcome::Denied);
    assert_eq!(denial.retry_after(), Some(Duration::from_secs(30 * 60)));
    assert_eq!((denial.limit(), denial.remaining()), (Some(2), Some(1)));
    assert_eq!(violated(&denial), few);
    assert!(!denial.failed_closed());

    let denial = ask("ann", "3").await.1.unwrap();
    assert_eq!(denial.outcome(), Outcome::Never);
    assert_eq!(denial.retry_after(), None);
    assert_eq!(violated(&denial), few);

    let denial = ask("", "1").await.1.unwrap();
    assert_eq!((denial.limit(), denial.remaining()), (None, Some(0)));
    let missing = [("r".to_owned(), "missing_key".to_owned())];
    assert_eq!(violated(&denial), missing);
}

#[tokio::test(start_paused = true)]
async fn a_function_answers_when_the_limiter_fails_closed() {
    let denials = Denials::default();
    let service = failing_closed(|layer| layer.on_denied(record(&denials)));
    let got = send(&service, get("/x")).await;
    assert_eq!((got.status, &*got.body), (503, "denied"));
    assert_eq!(got.header("retry-after"), Some("1"));
    let denial = denials.lock().unwrap().pop().unwrap();
    assert!(denial.failed_closed());
    assert_eq!(denial.outcome(), Outcome::FailedClosed);
    assert_eq!(denial.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(denial.violated().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_function_answers_requests_that_are_denied_after_a_wait() {
    let rules = "{ id: r, scope: global, algorithm: fixed_window, on_exceed: wait, max_wait: 3s, \
                 bands: [ { id: b, capacity: 1, window: 1s } ] }";
    let events = Events::default();
    let service = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .on_denied(|request, denial| {
            let seen = request.headers.keys().map(|name| name.as_str());
            let seen: Vec<_> = seen.collect();
            let (path, wait) = (request.uri.path(), denial.retry_after());
            teapot(format!("{path} {} {wait:?}", seen.join(",")))
        })
        .layer(Inner::new(&events));
    let start = Instant::now();
    let ask = async |path: &str| {
        let mut request = get(path);
        // The function gets the head that the inner service would have.
        let variant = HeaderValue::from_static("v");
        request.headers_mut().insert("x_user_id", variant);
        let got = send(&service, request).await;
        (got, start.elapsed().as_secs())
    };
    assert_eq!(ask("/a").await.0.status, 200);
    // Both wait for the next window, which has room for one.
    let both: [(Got, u64); 2] = tokio::join!(ask("/b"), ask("/b")).into();
    let (late, refused): (Vec<_>, Vec<_>) = both.iter().partition(|(got, _)| got.status == 200);
    let ([_], [(refused, waited)]) = (&late[..], &refused[..]) else {
        panic!("{both:?}");
    };
    assert_eq!((refused.status, *waited), (418, 1));
    let wait = refused.body.strip_prefix("/b x-user-id Some(");
    assert!(wait.is_some(), "{}", refused.body);
    assert_eq!(refused.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(events.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_request_that_is_denied_at_once_is_the_same() {
    let layer = RateLimitLayer::new(limiter(ONE_A_MINUTE)).rule_set("s");
    let service = layer
        .on_denied(|request, _| teapot(format!("{:?}", request.headers)))
        .layer(Inner::new(&Events::default()));
    let ask = async || {
        let mut request = get("/x");
        let headers = request.headers_mut();
        headers.append("x-user-id", HeaderValue::from_static("u"));
        headers.insert("x_user_id", HeaderValue::from_static("v"));
        send(&service, request).await
    };
    assert_eq!(ask().await.status, 200);
    assert_eq!(ask().await.body, "{\"x-user-id\": \"u\"}");
}

#[tokio::test(start_paused = true)]
async fn bad_requests_and_grpc_requests_are_answered_without_the_function() {
    let denials = Denials::default();
    let service = RateLimitLayer::new(limiter(ONE_A_MINUTE))
        .rule_set("s")
        .on_denied(record(&denials))
        .layer(Inner::new(&Events::default()));
    assert_eq!(send(&service, get("/x")).await.status, 200);
    let got = send(&service, get("/a/../x")).await;
    assert_eq!(got.status, 400);
    assert_eq!(got.header("content-type"), Some("application/problem+json"));
    let mut request = get("/p.S/M");
    let grpc = HeaderValue::from_static("application/grpc");
    request.headers_mut().insert("content-type", grpc);
    let got = send(&service, request).await;
    assert_eq!((got.status, got.header("grpc-status")), (200, Some("8")));
    assert_eq!(denials.lock().unwrap().len(), 0);
    assert_eq!(send(&service, get("/x")).await.body, "denied");
    assert_eq!(denials.lock().unwrap().len(), 1);
}
