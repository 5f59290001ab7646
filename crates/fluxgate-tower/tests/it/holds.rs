//! Slots: held until the response has ended, in whatever way it ends.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::Settlement;
use fluxgate_core::task::ready;
use fluxgate_tower::{RateLimitLayer, RequestHold};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{TestLimiter, get, limiter};

const SLOT: &str =
    "{ id: r, scope: global, algorithm: concurrency, hold: 10s, bands: [ { capacity: 1 } ] }";

/// Returns the number of free slots.
fn free(limiter: &TestLimiter) -> u64 {
    ready(limiter.state("s", "r", &[])).unwrap()[0].remaining
}

/// A body that fails after its first frame.
#[derive(Default)]
struct FailingBody {
    has_begun: bool,
}

impl Body for FailingBody {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(Some(if std::mem::replace(&mut self.has_begun, true) {
            Err("broken")
        } else {
            Ok(Frame::data(Bytes::from_static(b"x")))
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_held_until_the_body_has_ended_or_is_dropped() {
    let limiter = limiter(SLOT);
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let inner = service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"inner"))))
    });
    let service = layer.layer(inner);
    let response = service.clone().oneshot(get("/")).await.unwrap();
    assert_eq!((response.status(), free(&limiter)), (StatusCode::OK, 0));
    let denied = service.clone().oneshot(get("/")).await.unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    response.into_body().collect().await.unwrap();
    assert_eq!(free(&limiter), 1, "the body has ended");
    let response = service.oneshot(get("/")).await.unwrap();
    drop(response);
    assert_eq!(free(&limiter), 1, "the client has left");
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_renewed_for_as_long_as_the_request_runs() {
    let limiter = limiter(SLOT);
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let inner = service_fn(async |_: Request<Full<Bytes>>| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let running = tokio::spawn(layer.layer(inner).oneshot(get("/")));
    for _ in 0..11 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(free(&limiter), 0);
    }
    let response = running.await.unwrap().unwrap();
    assert_eq!(free(&limiter), 0, "the body has not ended");
    drop(response);
    assert_eq!(free(&limiter), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_after_a_failed_body() {
    let limiter = limiter(SLOT);
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let inner = service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(FailingBody::default()))
    });
    let response = layer.layer(inner).oneshot(get("/")).await.unwrap();
    let mut body = Box::pin(response.into_body());
    body.frame().await.unwrap().unwrap();
    assert_eq!(free(&limiter), 0);
    body.frame().await.unwrap().unwrap_err();
    assert_eq!(free(&limiter), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_after_a_panic_and_after_a_dropped_future() {
    let limiter = limiter(SLOT);
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let inner = service_fn(async |request: Request<Full<Bytes>>| {
        assert_ne!(request.uri().path(), "/panic");
        pending::<Result<Response<Full<Bytes>>, Infallible>>().await
    });
    let service = layer.layer(inner);
    let panicking = tokio::spawn(service.clone().oneshot(get("/panic")));
    let error = panicking.await.unwrap_err();
    assert!(error.is_panic());
    assert_eq!(free(&limiter), 1);
    let running = tokio::spawn(service.oneshot(get("/")));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(free(&limiter), 0);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!(free(&limiter), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_settles_the_charge_of_its_request() {
    let rules = format!(
        "{SLOT}, {{ id: units, scope: global, cost: 40, algorithm: fixed_window, bands: [ {{ capacity: 100, window: 1h }} ] }}"
    );
    let limiter = limiter(&rules);
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let inner = service_fn(async |request: Request<Full<Bytes>>| {
        let hold = request.extensions().get::<RequestHold>().unwrap();
        let settled = hold.settle(Settlement::Cost(15)).await.unwrap().unwrap();
        assert_eq!((settled.charged, settled.uncharged), (15, 0));
        assert_eq!(
            hold.settle(Settlement::Cost(99)).await.unwrap(),
            None,
            "once"
        );
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let response = layer.layer(inner).oneshot(get("/")).await.unwrap();
    assert_eq!(free(&limiter), 1, "settling gives the slot back");
    drop(response);
    let units = ready(limiter.state("s", "units", &[])).unwrap()[0].remaining;
    assert_eq!(units, 85);
}

#[tokio::test(start_paused = true)]
async fn an_upgraded_connection_keeps_the_slot_with_its_hold() {
    let limiter = limiter(SLOT);
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let (keep, mut kept) = mpsc::channel(1);
    let inner = service_fn(|request: Request<Full<Bytes>>| {
        let hold = request.extensions().get::<RequestHold>().cloned();
        keep.try_send(hold.unwrap()).unwrap();
        let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        async { Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap()) }
    });
    let response = layer.layer(inner).oneshot(get("/")).await.unwrap();
    drop(response);
    assert_eq!(free(&limiter), 0);
    drop(kept.recv().await);
    assert_eq!(free(&limiter), 1);
}

/// Units are charged before a request waits for them, so the wait is part of its hold.
#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_while_its_request_waits() {
    const PACED: &str = "{ id: paced, scope: global, on_exceed: wait, max_wait: 5m, bands: [ { capacity: 1, window: 3m } ] }";
    let slots = SLOT.replace("capacity: 1", "capacity: 2");
    for rules in [PACED.to_owned(), format!("{slots}, {PACED}")] {
        let limiter = limiter(&rules);
        let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
        let layer = layer.customize(|context, _| context.hold(Duration::from_secs(60)));
        let inner = service_fn(async |request: Request<Full<Bytes>>| {
            let hold = request.extensions().get::<RequestHold>().unwrap();
            let settled = hold.settle(Settlement::AsReserved).await.unwrap();
            assert!(settled.is_some(), "the hold has expired");
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        });
        let service = layer.layer(inner);
        service.clone().oneshot(get("/")).await.unwrap();
        let waiting = tokio::spawn(service.clone().oneshot(get("/")));
        let has_slots = rules != PACED;
        for _ in 0..17 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(limiter.kept_holds(), 1);
            assert!(!has_slots || free(&limiter) == 1, "the slot has expired");
        }
        let response = waiting.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        drop(response);
        assert_eq!(limiter.kept_holds(), 0);
        assert!(!has_slots || free(&limiter) == 2);

        let waiting = tokio::spawn(service.oneshot(get("/")));
        tokio::time::sleep(Duration::from_secs(90)).await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert_eq!((limiter.kept_holds(), limiter.store().holds()), (0, 0));
        assert!(!has_slots || free(&limiter) == 2);
    }
}
