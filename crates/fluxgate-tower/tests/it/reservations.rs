//! Reservations, and their cancellation when a request is dropped.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::path::RequestPath;
use fluxgate_http::{Evaluation, Filter, IncomingRequest, RequestHead};
use fluxgate_tower::RateLimitLayer;
use http::Request;
use http_body_util::Full;
use tokio::time::{Instant, advance, sleep, timeout};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt};

use crate::support::{Events, Inner, TestLimiter, get, limiter, send};

/// Allows one request in two seconds for `/slow`, and `all` in a second for all paths.
fn slow(all: u64) -> TestLimiter {
    limiter(&format!(
        "{{ id: r, match: {{ path: [\"/slow\"] }}, scope: global, on_exceed: wait, max_wait: 1h, bands: [ {{ capacity: 1, window: 2s }} ] }}, \
         {{ id: all, scope: global, algorithm: fixed_window, bands: [ {{ capacity: {all}, window: 1s }} ] }}"
    ))
}

/// Returns how long until the bucket is full, in milliseconds, and the units left in the
/// window.
fn state(limiter: &TestLimiter) -> (u64, u64) {
    let of = |rule| {
        fluxgate_core::task::ready(limiter.state("s", rule, &[]))
            .unwrap()
            .remove(0)
    };
    (of("r").reset_after.as_millis() as u64, of("all").remaining)
}

/// Returns the response future of a ready service, not polled yet.
async fn call<S>(service: &mut S, request: Request<Full<Bytes>>) -> S::Future
where
    S: Service<Request<Full<Bytes>>, Error = Infallible>,
{
    service.ready().await.unwrap().call(request)
}

#[tokio::test(start_paused = true)]
async fn a_response_future_that_is_never_polled_cancels_its_reservation() {
    let limiter = slow(9);
    let events = Events::default();
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let mut service = layer.layer(Inner::new(&events));
    assert_eq!(send(&service, get("/slow")).await.status, 200);
    assert_eq!(state(&limiter), (2000, 8));
    let response = call(&mut service, get("/slow")).await;
    assert_eq!(state(&limiter), (4000, 7));
    drop(response);
    assert_eq!(state(&limiter), (2000, 8));
    assert_eq!(events.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pending_evaluation_that_is_dropped_cancels_its_reservation() {
    let limiter = slow(9);
    let filter = Filter::default().rule_set("s");
    let (head, _) = get("/slow").into_parts();
    let path = RequestPath::as_given("/slow");
    let rules = filter.rules_for(&limiter, &path).unwrap();
    let request = IncomingRequest {
        head: &head,
        path: &path,
        peer: None,
    };
    let try_evaluate = || {
        let evaluation = Evaluation::new(&filter, &limiter, &rules, request, |context| context);
        evaluation
            .unwrap()
            .try_evaluate(|| &limiter)
            .map_err(Box::new)
    };
    assert!(try_evaluate().is_ok());
    let pending = try_evaluate().unwrap_err();
    assert_eq!(state(&limiter), (4000, 7));
    drop(pending);
    assert_eq!(state(&limiter), (2000, 8));
    let pending = try_evaluate().unwrap_err();
    let future = pending.finish(&filter, &limiter, &rules);
    assert_eq!(state(&limiter), (4000, 7));
    drop(future);
    assert_eq!(state(&limiter), (2000, 8));
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_in_a_later_window_frees_nothing_there() {
    let limiter = slow(2);
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let service = layer.layer(Inner::new(&Events::default()));
    assert_eq!(send(&service, get("/slow")).await.status, 200);
    let waiter = {
        let service = service.clone();
        tokio::spawn(async move { send(&service, get("/slow")).await })
    };
    tokio::task::yield_now().await;
    assert_eq!(state(&limiter), (4000, 0));
    advance(Duration::from_millis(1200)).await;
    for _ in 0..2 {
        assert_eq!(send(&service, get("/fast")).await.status, 200);
    }
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    assert_eq!(state(&limiter), (800, 0));
    assert_eq!(send(&service, get("/fast")).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_does_not_occupy_the_inner_service() {
    let layer = RateLimitLayer::new(slow(9)).rule_set("s");
    let events = Events::default();
    let limited = ConcurrencyLimitLayer::new(1).layer(Inner::new(&events));
    let service = layer.layer(limited);
    let mut first = service.clone();
    assert_eq!(send(&service, get("/slow")).await.status, 200);
    // The service outlives the call, like that of a connection.
    let waiter = call(&mut first, get("/slow")).await;
    let waiter = tokio::spawn(waiter);
    tokio::task::yield_now().await;
    let other = timeout(Duration::from_secs(1), send(&service, get("/fast")));
    assert_eq!(other.await.expect("the inner service is free").status, 200);
    assert_eq!(waiter.await.unwrap().unwrap().status(), 200);
    assert_eq!(events.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_in_total_is_denied_and_charged_nothing() {
    let limiter = limiter(
        "{ id: w, match: { path: [\"/a\"] }, scope: global, algorithm: fixed_window, on_exceed: wait, max_wait: 2s, bands: [ { capacity: 1, window: 1s } ] }, \
         { id: b, scope: global, on_exceed: wait, max_wait: 1500ms, bands: [ { capacity: 1, window: 1s } ] }",
    );
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let service = layer.layer(Inner::new(&Events::default()));
    assert_eq!(send(&service, get("/a")).await.status, 200);
    let start = Instant::now();
    let other = async {
        sleep(Duration::from_millis(500)).await;
        send(&service, get("/b")).await.status
    };
    // After one second, the bucket would delay it for another.
    let (got, other) = tokio::join!(send(&service, get("/a")), other);
    assert_eq!((got.status, other), (429, 200));
    assert!(start.elapsed().as_millis() <= 1005, "{:?}", start.elapsed());
    let state = limiter.state("s", "b", &[]).await.unwrap();
    assert!(state[0].reset_after.as_micros() <= 1_000_000);
}

#[tokio::test(start_paused = true)]
async fn times_count_from_the_end_of_the_wait() {
    let layer = RateLimitLayer::new(limiter(
        "{ id: r, scope: global, on_exceed: wait, max_wait: 1h, bands: [ { capacity: 1, window: 10s } ] }",
    ));
    let service = layer.rule_set("s").layer(Inner::new(&Events::default()));
    for _ in 0..2 {
        // The second waits for ten seconds of its reset of twenty.
        let got = send(&service, get("/x")).await;
        assert_eq!(got.header("ratelimit"), Some("\"r/b0\";r=0;t=10"));
    }
}

#[test]
fn header_names_are_case_insensitive_among_few_and_many_headers() {
    let (mut head, _) = get("/x").into_parts();
    assert_eq!(RequestHead::header(&head, "X-User-Id"), Some("u"));
    for index in 0..9 {
        let name = http::HeaderName::try_from(format!("x-{index}")).unwrap();
        head.headers.insert(name, "1".parse().unwrap());
    }
    assert_eq!(RequestHead::header(&head, "X-User-Id"), Some("u"));
}
