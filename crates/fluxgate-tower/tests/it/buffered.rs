//! The layer together with tower's `Buffer` and `LoadShed`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_tower::{RateLimitLayer, ResponseBody};
use http::{Request, Response};
use http_body_util::Full;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::load_shed::error::Overloaded;
use tower::util::BoxCloneService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use crate::support::{Events, Inner, TestLimiter, get, limiter};

/// The futures of a boxed service are `Send`.
type Stack = BoxCloneService<Request<Full<Bytes>>, Response<ResponseBody<Full<Bytes>>>, BoxError>;

/// The response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sent {
    Status(u16),
    /// The request was shed.
    Shed,
}

const OK: Sent = Sent::Status(200);
const DENIED: Sent = Sent::Status(429);

/// An inner service with permits for concurrent requests, behind a buffer and the layer.
struct Setup {
    limiter: TestLimiter,
    permits: Arc<Semaphore>,
    events: Events,
}

impl Setup {
    /// Allows so many requests an hour in total.
    fn new(capacity: u32, permits: usize) -> Self {
        let band = format!("bands: [ {{ capacity: {capacity}, window: 1h }} ]");
        Self::with_rules(&format!("{{ id: r, scope: global, {band} }}"), permits)
    }

    fn with_rules(rules: &str, permits: usize) -> Self {
        Self {
            limiter: limiter(rules),
            permits: Arc::new(Semaphore::new(permits)),
            events: Events::default(),
        }
    }

    fn limits(&self) -> RateLimitLayer<TestLimiter> {
        RateLimitLayer::new(self.limiter.clone()).rule_set("s")
    }

    fn gate(&self) -> GlobalConcurrencyLimitLayer {
        GlobalConcurrencyLimitLayer::with_semaphore(Arc::clone(&self.permits))
    }

    /// The worker of the buffer calls the layer.
    fn layer_inside(&self, places: usize) -> Stack {
        let stack = ServiceBuilder::new()
            .load_shed()
            .buffer(places)
            .layer(self.limits())
            .layer(self.gate())
            .service(Inner::new(&self.events));
        stack.boxed_clone()
    }

    /// The layer calls the buffer.
    fn layer_outside(&self, places: usize) -> Stack {
        let stack = ServiceBuilder::new()
            .layer(self.limits())
            .load_shed()
            .buffer(places)
            .layer(self.gate())
            .service(Inner::new(&self.events));
        stack.boxed_clone()
    }

    /// Returns how many of an hour's units are left.
    async fn remaining(&self) -> u64 {
        let state = self.limiter.state("s", "r", &[]).await.unwrap();
        state[0].remaining
    }
}

/// Sends a request through this handle, which stays.
async fn send(stack: &mut Stack, path: &str) -> Sent {
    let response = async { stack.ready().await?.call(get(path)).await };
    match response.await {
        Ok(response) => Sent::Status(response.status().as_u16()),
        Err(error) if error.is::<Overloaded>() => Sent::Shed,
        Err(error) => panic!("{error}"),
    }
}

/// Sends a request in a task of its own, and lets it get as far as it can.
async fn spawn(stack: &Stack) -> JoinHandle<Sent> {
    let mut stack = stack.clone();
    let task = tokio::spawn(async move { send(&mut stack, "/x").await });
    // The clock is paused: this returns when all tasks are idle.
    sleep(Duration::from_millis(1)).await;
    task
}

#[tokio::test(start_paused = true)]
async fn limits_hold_around_and_inside_a_buffer() {
    for build in [Setup::layer_inside, Setup::layer_outside] {
        let setup = Setup::new(2, 8);
        let stack = build(&setup, 8);
        let sent = (0..5).map(|_| {
            let mut stack = stack.clone();
            tokio::spawn(async move { send(&mut stack, "/x").await })
        });
        let sent: Vec<_> = sent.collect();
        let mut got = Vec::new();
        for sent in sent {
            got.push(sent.await.unwrap());
        }
        got.sort();
        assert_eq!(got, [OK, OK, DENIED, DENIED, DENIED]);
        assert_eq!(setup.events.count(), 2);
        assert_eq!(setup.permits.available_permits(), 8);
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_leaves_the_slot_of_the_inner_service_to_others() {
    for build in [Setup::layer_inside, Setup::layer_outside] {
        let setup = Setup::new(1, 1);
        let mut stack = build(&setup, 1);
        assert_eq!(send(&mut stack, "/x").await, OK);
        assert_eq!(send(&mut stack, "/x").await, DENIED);
        // The handle and the worker of the buffer live on.
        assert_eq!(setup.permits.available_permits(), 1);
        assert_eq!(setup.events.count(), 1);
        let rejected = stack.ready().await.unwrap().call(get("/a/../x")).await;
        assert_eq!(rejected.unwrap().status(), 400);
        assert_eq!(setup.permits.available_permits(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_leaves_its_place_in_the_buffer_to_others() {
    let rules = "{ id: r, match: { path: [/denied] }, scope: global, cost: 2, \
                 bands: [ { capacity: 1, window: 1h } ] }";
    let setup = Setup::with_rules(rules, 1);
    let mut stack = setup.layer_outside(1);
    assert_eq!(send(&mut stack, "/denied").await, DENIED);
    let mut other = stack.clone();
    assert_eq!(send(&mut other, "/x").await, OK);
    assert_eq!(setup.events.take().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_layer_behind_a_buffer_charges_nothing_for_requests_that_are_shed() {
    let setup = Setup::new(9, 1);
    let mut stack = setup.layer_inside(1);
    let busy = Arc::clone(&setup.permits).acquire_owned().await.unwrap();
    // One is with the worker, which waits for the inner service, and one in the buffer.
    let waiting = [spawn(&stack).await, spawn(&stack).await];
    assert_eq!(send(&mut stack, "/x").await, Sent::Shed);
    assert_eq!(setup.remaining().await, 9);
    assert_eq!(setup.events.count(), 0);
    drop(busy);
    for sent in waiting {
        assert_eq!(sent.await.unwrap(), OK);
    }
    assert_eq!(setup.remaining().await, 7);
    assert_eq!(send(&mut stack, "/x").await, OK);
    assert_eq!(setup.events.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_layer_in_front_of_a_buffer_denies_while_the_inner_service_is_busy() {
    let setup = Setup::new(3, 1);
    let mut stack = setup.layer_outside(1);
    let busy = Arc::clone(&setup.permits).acquire_owned().await.unwrap();
    let waiting = [spawn(&stack).await, spawn(&stack).await];
    // The layer has charged the request before the buffer turns out to be full.
    assert_eq!(send(&mut stack, "/x").await, Sent::Shed);
    assert_eq!(setup.remaining().await, 0);
    assert_eq!(send(&mut stack, "/x").await, DENIED);
    assert_eq!(setup.events.count(), 0);
    drop(busy);
    for sent in waiting {
        assert_eq!(sent.await.unwrap(), OK);
    }
    assert_eq!(setup.events.count(), 2);
    assert_eq!(send(&mut stack, "/x").await, DENIED);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_units_occupies_neither_buffer_nor_slot() {
    let rules = "{ id: r, match: { path: [/slow] }, scope: global, on_exceed: wait, \
                 bands: [ { capacity: 1, window: 2s } ] }";
    for build in [Setup::layer_inside, Setup::layer_outside] {
        let setup = Setup::with_rules(rules, 1);
        let mut stack = build(&setup, 1);
        assert_eq!(send(&mut stack, "/slow").await, OK);
        let start = Instant::now();
        let mut other = stack.clone();
        let both = tokio::join!(send(&mut stack, "/slow"), async {
            // By now the first request waits.
            sleep(Duration::from_millis(1)).await;
            assert_eq!(setup.permits.available_permits(), 1);
            (send(&mut other, "/x").await, start.elapsed())
        });
        let (slow, (fast, passed)) = both;
        assert_eq!((slow, fast), (OK, OK));
        assert!(passed < Duration::from_secs(1), "{passed:?}");
        assert!(start.elapsed() >= Duration::from_secs(2));
        let paths = setup.events.take().into_iter();
        let paths: Vec<_> = paths.map(|it| it[..2].to_owned()).collect();
        assert_eq!(paths, ["/s", "/x", "/s"]);
    }
}
