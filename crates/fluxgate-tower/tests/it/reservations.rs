//! What a request reserved, and who has it when the request goes away.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::RequestPath;
use fluxgate_tower::{Filter, RateLimitLayer, RequestHead};
use http::Request;
use http_body_util::Full;
use tokio::time::{Instant, advance, sleep, timeout};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt};

use crate::support::{Events, Inner, TestLimiter, get, limiter, send};

const MILLIS: u64 = 1000;

/// One in two seconds, for `/slow`; and so many in a second, for all.
fn slow(all: u64) -> TestLimiter {
    limiter(&format!(
        "{{ id: r, match: {{ path: [\"/slow\"] }}, scope: global, on_exceed: wait, max_wait: 1h, bands: [ {{ capacity: 1, window: 2s }} ] }}, \
         {{ id: all, scope: global, algorithm: fixed_window, bands: [ {{ capacity: {all}, window: 1s }} ] }}"
    ))
}

/// How long until the bucket is full, in milliseconds, and what is left of the
/// window.
fn state(limiter: &TestLimiter) -> (u64, u64) {
    let of = |rule| {
        fluxgate_core::ready(limiter.state("s", rule, &[]))
            .unwrap()
            .remove(0)
    };
    (of("r").reset_after.get() / MILLIS, of("all").remaining)
}

/// The response of a service that is ready, not asked for yet.
async fn call<S>(service: &mut S, request: Request<Full<Bytes>>) -> S::Future
where
    S: Service<Request<Full<Bytes>>, Error = Infallible>,
{
    service.ready().await.unwrap().call(request)
}

#[tokio::test(start_paused = true)]
async fn a_response_that_nobody_ever_asked_for_gives_back() {
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
async fn an_unsettled_request_that_nobody_goes_on_with_gives_back() {
    let limiter = slow(9);
    let filter = Filter::default().rule_set("s");
    let (head, _) = get("/slow").into_parts();
    let path = RequestPath::as_given("/slow");
    let rules = filter.rules_for(&limiter, &path).unwrap();
    let first = filter.try_evaluate(&limiter, &rules, &head, &path, None);
    assert!(first.is_ok());
    let unsettled = filter.try_evaluate(&limiter, &rules, &head, &path, None);
    let unsettled = unsettled.unwrap_err();
    assert_eq!(state(&limiter), (4000, 7));
    drop(unsettled);
    assert_eq!(state(&limiter), (2000, 8));
    let unsettled = filter.try_evaluate(&limiter, &rules, &head, &path, None);
    let future = filter.evaluate_pending(&limiter, unsettled.unwrap_err());
    assert_eq!(state(&limiter), (4000, 7));
    drop(future);
    assert_eq!(state(&limiter), (2000, 8));
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_in_another_window_lets_nobody_more_pass() {
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
async fn who_waits_keeps_the_inner_service_from_nobody() {
    let layer = RateLimitLayer::new(slow(9)).rule_set("s");
    let events = Events::default();
    let limited = ConcurrencyLimitLayer::new(1).layer(Inner::new(&events));
    let service = layer.layer(limited);
    let mut first = service.clone();
    assert_eq!(send(&service, get("/slow")).await.status, 200);
    // A service that lives on, as that of a connection.
    let waiter = call(&mut first, get("/slow")).await;
    let waiter = tokio::spawn(waiter);
    tokio::task::yield_now().await;
    let other = timeout(Duration::from_secs(1), send(&service, get("/fast")));
    assert_eq!(other.await.expect("nobody is before it").status, 200);
    assert_eq!(waiter.await.unwrap().unwrap().status(), 200);
    assert_eq!(events.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_in_all_is_refused_and_keeps_nothing() {
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
    // After a second, the bucket would let it wait for another.
    let (got, other) = tokio::join!(send(&service, get("/a")), other);
    assert_eq!((got.status, other), (429, 200));
    assert!(start.elapsed().as_millis() <= 1005, "{:?}", start.elapsed());
    let state = limiter.state("s", "b", &[]).await.unwrap();
    assert!(state[0].reset_after.get() <= 1_000_000);
}

#[tokio::test(start_paused = true)]
async fn times_are_told_from_when_it_has_waited() {
    let layer = RateLimitLayer::new(limiter(
        "{ id: r, scope: global, on_exceed: wait, max_wait: 1h, bands: [ { capacity: 1, window: 10s } ] }",
    ));
    let service = layer.rule_set("s").layer(Inner::new(&Events::default()));
    for _ in 0..2 {
        // The second leaves ten seconds later, with twenty owed before.
        let got = send(&service, get("/x")).await;
        assert_eq!(got.header("ratelimit"), Some("\"r/b0\";r=0;t=10"));
    }
}

#[test]
fn a_name_of_a_header_has_no_case_however_many_there_are() {
    let (mut head, _) = get("/x").into_parts();
    assert_eq!(RequestHead::header(&head, "X-User-Id"), Some("u"));
    for index in 0..9 {
        let name = http::HeaderName::try_from(format!("x-{index}")).unwrap();
        head.headers.insert(name, "1".parse().unwrap());
    }
    assert_eq!(RequestHead::header(&head, "X-User-Id"), Some("u"));
}
