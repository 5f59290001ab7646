//! Limiters on Tokio's clock, and an inner service that records its calls.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::memory::Retention;
use fluxgate_core::{Clock, Limiter, MemoryStore, RuleSets, Timestamp};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tower::{Service, ServiceExt};
use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};

/// Tokio's clock, which tests can pause, starting at midnight of some day.
#[derive(Clone, Debug)]
pub(crate) struct TokioClock(Instant);

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        const DAY: u64 = 20_000 * 86_400_000_000;
        let passed = u64::try_from(self.0.elapsed().as_micros()).unwrap();
        Timestamp::saturating_from_micros(DAY + passed)
    }
}

pub(crate) type TestLimiter = Limiter<MemoryStore<TokioClock>>;

/// Creates a limiter with a rule set `s` of these rules in flow style.
pub(crate) fn limiter(rules: &str) -> TestLimiter {
    let store = MemoryStore::new(TokioClock::new(), 1_000, Retention::Forever);
    Limiter::new(set_of(rules), store)
}

/// Parses a rule set `s` of these rules in flow style.
pub(crate) fn set_of(rules: &str) -> RuleSets {
    let text = format!("rule_sets: {{ s: {{ rules: [ {rules} ] }} }}");
    RuleSets::from_yaml(&text).unwrap_or_else(|error| panic!("{error}\nin {text}"))
}

/// Events in the order in which they happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    pub(crate) fn add(&self, event: impl Into<String>) {
        self.0.lock().unwrap().push(event.into());
    }

    /// Removes and returns all events.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Answers 200, and records the path and the time of every request. It panics if it is called
/// before it is ready.
#[derive(Debug)]
pub(crate) struct Inner {
    events: Events,
    start: Instant,
    ready: bool,
    response: fn() -> Response<Full<Bytes>>,
}

impl Inner {
    pub(crate) fn new(events: &Events) -> Self {
        Self::answering(events, || {
            Response::new(Full::new(Bytes::from_static(b"inner")))
        })
    }

    pub(crate) fn answering(events: &Events, response: fn() -> Response<Full<Bytes>>) -> Self {
        Self {
            events: events.clone(),
            start: Instant::now(),
            ready: false,
            response,
        }
    }
}

/// A clone is not ready, as the contract of tower allows.
impl Clone for Inner {
    fn clone(&self) -> Self {
        Self {
            events: self.events.clone(),
            ready: false,
            ..*self
        }
    }
}

impl<B> Service<Request<B>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being ready"
        );
        let at = self.start.elapsed().as_millis();
        self.events.add(format!("{} at {at}", request.uri().path()));
        ready(Ok((self.response)()))
    }
}

/// A response with its whole body.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    let request = Request::get(path).header("x-user-id", "u");
    request.body(Full::default()).unwrap()
}

/// Sends a request to a service.
pub(crate) async fn send<S, B>(service: &S, request: Request<Full<Bytes>>) -> Got
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let (head, body) = service.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Got {
        status: head.status.as_u16(),
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// Polls a condition until it holds.
pub(crate) async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + fluxgate_testkit::WAIT_TIMEOUT;
    while !look().await {
        assert!(Instant::now() < end, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns a Python with the packages that `scripts/test` installs.
pub(crate) fn python() -> PathBuf {
    let named = std::env::var_os("FLUXGATE_PYTHON").filter(|path| !path.is_empty());
    let project = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = named.map_or_else(|| project.join("target/venv/bin/python"), PathBuf::from);
    let shown = file.display();
    assert!(
        file.is_file(),
        "{shown} is missing; scripts/test installs it"
    );
    file
}

/// Records the warnings of this thread until the guard is dropped.
pub(crate) fn record_warnings(warnings: &Events) -> DefaultGuard {
    // With a single subscriber, tracing decides by the thread that reaches an event first
    // whether anybody wants it, and the threads of other tests have no subscriber.
    static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));
    LazyLock::force(&ANOTHER);
    tracing::subscriber::set_default(Warnings(warnings.clone()))
}

/// Records warnings.
struct Warnings(Events);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message<'e>(&'e Events);

        impl tracing::field::Visit for Message<'_> {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0.add(format!("{value:?}"));
                }
            }
        }

        event.record(&mut Message(&self.0));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
