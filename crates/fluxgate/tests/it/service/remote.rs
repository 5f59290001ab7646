//! The tower layer with a service that decides.

mod abandoned;
mod failures;
mod holds;
mod readings;
mod reservations;
mod tls;

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::{Limiter, MemoryStore, RuleSets};
use fluxgate_testkit::WAIT_TIMEOUT;
use fluxgate_tower::{RateLimit, RateLimitLayer, RemoteError, RemoteHandler};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::{Layer, ServiceExt};

use super::Service;

const RULES: &str = "
rule_sets:
  api:
    rules:
      - id: per-user
        match: { path: [\"/api/**\"] }
        scope: per_user
        bands: [ { id: burst, capacity: 2, window: 1h }, { id: day, capacity: 100, window: 1d } ]
      - { id: by-key, match: { path: [/key] }, scope: per_api_key, bands: [ { capacity: 1, window: 1h } ] }
      - id: parts
        match: { path: [/parts], methods: [PUT], headers: { X-Plan: free } }
        key: [ip, \"attr:tenant\", \"header:X-Tenant\"]
        cost: \"header:X-Cost\"
        bands: [ { capacity: 5, window: 1h } ]
      - { id: wait, match: { path: [/wait] }, scope: global, on_exceed: wait, max_wait: 1h, bands: [ { capacity: 1, window: 10m } ] }
      - { id: soon, match: { path: [/soon] }, scope: global, on_exceed: wait, bands: [ { capacity: 1, window: 300ms } ] }
      - { id: dark, match: { path: [/wait] }, mode: shadow, scope: global, bands: [ { capacity: 1, window: 10m } ] }
";

/// A deadline that is missed only by a fault, even on a loaded machine.
const GENEROUS: Duration = Duration::from_secs(10);

fn handler(address: SocketAddr) -> RemoteHandler {
    let handler = RemoteHandler::new(&format!("http://{address}")).unwrap();
    handler.deadline(GENEROUS)
}

/// An inner service that counts its calls, behind the layer.
#[derive(Clone)]
struct App {
    service: RateLimit<Inner, RemoteHandler>,
    calls: Arc<AtomicUsize>,
}

#[derive(Clone)]
struct Inner(Arc<AtomicUsize>);

impl tower::Service<Request<Full<Bytes>>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Response::new(Full::default())))
    }
}

impl App {
    fn new(handler: RemoteHandler) -> Self {
        Self::with_layer(RateLimitLayer::with_handler(handler).rule_set("api"))
    }

    fn with_layer(layer: RateLimitLayer<RemoteHandler>) -> Self {
        let calls = Arc::default();
        Self {
            service: layer.layer(Inner(Arc::clone(&calls))),
            calls,
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> (u16, HeaderMap, String) {
        let response = self.service.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        (head.status.as_u16(), head.headers, body)
    }

    async fn get(&self, path: &str) -> u16 {
        self.send(get(path)).await.0
    }
}

fn get(path: &str) -> Request<Full<Bytes>> {
    let request = Request::get(path).header("x-user-id", "u");
    request.body(Full::default()).unwrap()
}

async fn until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + WAIT_TIMEOUT;
    while !is_reached() {
        assert!(
            tokio::time::Instant::now() < end,
            "timed out waiting for: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The service receives the raw and the normal form of the path.
#[tokio::test]
async fn a_limit_on_a_path_holds_for_every_spelling() {
    let service = Service::start(&[], RULES);
    let app = App::new(handler(service.address("api")));
    assert_eq!(app.get("/%61pi/x").await, 200);
    assert_eq!(app.get("/api;v=1/x").await, 200);
    for spelled in ["/api/x", "/%61pi/x", "//api/x", "/api%2fx", "/api\\x"] {
        assert_eq!(app.get(spelled).await, 429, "{spelled}");
    }
    assert_eq!(app.get("/api/%2e%2e/x").await, 400);
    // Cancellations also work for every spelling.
    assert_eq!(app.get("/wait").await, 200);
    let waiting = tokio::spawn({
        let app = app.clone();
        async move { app.get("/%77ait").await }
    });
    let remaining = |service: &Service| {
        let state = service.http().get("/v1/state?rule_set=api&rule=wait");
        serde_json::from_str::<Value>(&state.body).unwrap()["bands"][0]["reset_after_ms"].as_u64()
    };
    let is_reserved = |after: Option<u64>| after.is_some_and(|after| after > 600_000);
    until("a request waits", || is_reserved(remaining(&service))).await;
    waiting.abort();
    until("the reservation is cancelled", || {
        !is_reserved(remaining(&service))
    })
    .await;
}

#[tokio::test]
async fn responses_match_those_of_the_embedded_limiter() {
    let service = Service::start(&[], RULES);
    let remote = App::new(handler(service.address("api")));
    let limiter = Limiter::new(RuleSets::from_yaml(RULES).unwrap(), MemoryStore::default());
    let calls = Arc::default();
    let embedded = RateLimitLayer::new(limiter).rule_set("api");
    let embedded = embedded.layer(Inner(Arc::clone(&calls)));
    for status in [200, 200, 429] {
        let (got, headers, body) = remote.send(get("/api/x?q=1")).await;
        assert_eq!(got, status);
        let response = embedded.clone().oneshot(get("/api/x?q=1")).await.unwrap();
        let (head, local) = response.into_parts();
        for name in head.headers.keys() {
            let (here, there) = (&head.headers[name], &headers[name]);
            // Time passes between the two.
            let exact = ![
                "x-ratelimit-reset",
                "ratelimit",
                "retry-after",
                "content-length",
            ]
            .contains(&name.as_str());
            assert!(!exact || here == there, "{name}: {here:?} {there:?}");
        }
        assert_eq!(head.headers.len(), headers.len(), "{headers:?}");
        if status == 429 {
            let local = local.collect().await.unwrap().to_bytes();
            let local: Value = serde_json::from_slice(&local).unwrap();
            let body: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(local["violated-policies"], body["violated-policies"]);
            assert_eq!(local["type"], body["type"]);
            let wait = body["retry_after_ms"].as_u64().unwrap();
            assert!((1_700_000..=1_800_000).contains(&wait), "{wait}");
        }
    }
    assert_eq!(remote.calls.load(Ordering::Relaxed), 2);
    // Without a matching rule there are no headers.
    let (status, headers, _) = remote.send(get("/none")).await;
    assert!(status == 200 && headers.is_empty(), "{headers:?}");
}

#[tokio::test]
async fn a_forbidden_request_is_answered_with_the_status_of_its_rule() {
    let rules = "
rule_sets:
  api:
    rules:
      - { id: no, action: deny, match: { path: [/no] } }
      - { id: gone, action: deny, status: 410, match: { path: [/gone] } }
      - { id: yes, action: allow, match: { path: [/yes] } }
      - { id: limit, scope: per_user, bands: [ { capacity: 1, window: 1h } ] }
";
    let service = Service::start(&[], rules);
    let limiter = Limiter::new(RuleSets::from_yaml(rules).unwrap(), MemoryStore::default());
    // The service decides, or the local rules in its place.
    let gone = fluxgate_testkit::ports::free();
    for handler in [
        handler(service.address("api")),
        handler(gone.addr()).local_on_error(limiter),
    ] {
        let app = App::new(handler);
        for (path, status) in [("/no", 403), ("/gone", 410)] {
            let (got, headers, body) = app.send(get(path)).await;
            assert_eq!(got, status);
            let names: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
            assert_eq!(names, ["content-type", "content-length"]);
            let body: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(
                (&body["status"], &body["type"]),
                (&status.into(), &"about:blank".into())
            );
        }
        for _ in 0..3 {
            let (status, headers, _) = app.send(get("/yes")).await;
            assert!(status == 200 && headers.is_empty(), "{headers:?}");
        }
        assert_eq!(app.calls.load(Ordering::Relaxed), 3);
    }
}

#[tokio::test]
async fn the_service_receives_every_field_that_rules_may_use() {
    let service = Service::start(&[], RULES);
    let layer = RateLimitLayer::with_handler(handler(service.address("api")))
        .rule_set("api")
        .peer(|_| Some([10, 0, 0, 1].into()))
        .customize(|context, request| match request.headers.get("x-t") {
            Some(tenant) => context.attribute("tenant", tenant.to_str().unwrap_or_default()),
            None => context,
        });
    let app = App::with_layer(layer);
    let with = |path: &str, headers: &[(&str, &str)]| {
        let mut request = Request::put(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Full::default()).unwrap()
    };
    let status = async |path: &str, headers: &[(&str, &str)]| app.send(with(path, headers)).await.0;
    let base = [
        ("X-Plan", "free"),
        ("X-Tenant", "a\"\u{e4}"),
        ("x-t", "b"),
        ("x-cost", "5"),
    ];
    assert_eq!(status("/parts", &base).await, 200);
    assert_eq!(status("/parts", &base).await, 429);
    for change in [("X-Plan", "paid"), ("X-Tenant", "c"), ("x-t", "c")] {
        let headers = base.map(|it| if it.0 == change.0 { change } else { it });
        assert_eq!(status("/parts", &headers).await, 200, "{change:?}");
    }
    assert_eq!(status("/key", &[("X-API-Key", "k1")]).await, 200);
    assert_eq!(status("/key", &[("X-API-Key", "k1")]).await, 429);
    assert_eq!(status("/key", &[("X-API-Key", "k2")]).await, 200);
}

/// A response that allows the request.
const ALLOWED: &str = r#"{"allowed":true,"outcome":"no_rule","rule":null,"band":null,"limit":null,"remaining":null,"retry_after_ms":0,"reset_after_ms":0,"delay_ms":0,"violated":[]}"#;

/// Returns a response with this body.
fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Starts a server that answers one request with these bytes, and returns the request.
fn answering(answer: String) -> (SocketAddr, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let request = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut request, mut part) = (Vec::new(), [0; 65_536]);
        while !request.ends_with(b"}") {
            match stream.read(&mut part).unwrap() {
                0 => break,
                read => request.extend_from_slice(&part[..read]),
            }
        }
        // The client may close before it has read everything.
        let _ = stream.write_all(answer.as_bytes());
        String::from_utf8(request).unwrap()
    });
    (address, request)
}

#[tokio::test]
async fn credentials_and_connection_headers_are_not_sent() {
    let request = || {
        let mut request = get("/api/x");
        let headers = request.headers_mut();
        for name in ["Authorization", "Cookie", "Connection", "TE", "X-Other"] {
            let name = http::HeaderName::try_from(name).unwrap();
            headers.append(name.clone(), "hidden-1".parse().unwrap());
            // Only a header that is sent must not have two values.
            let second = if name == "x-other" { 1 } else { 2 };
            headers.append(name, format!("hidden-{second}").parse().unwrap());
        }
        request
    };
    let (address, received) = answering(ok(ALLOWED));
    assert_eq!(App::new(handler(address)).send(request()).await.0, 200);
    let received = received.join().unwrap();
    let body: Value = serde_json::from_str(received.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "rule_set": "api", "user": "u", "method": "GET", "path": "/api/x",
            "headers": { "x-user-id": "u", "x-other": "hidden-1" }, "attributes": {}, "wait": true,
        })
    );
    // If headers are chosen, only these are sent.
    let (address, received) = answering(ok(ALLOWED));
    let chosen = handler(address).headers(["Cookie"]);
    assert_eq!(App::new(chosen).send(request()).await.0, 200);
    let received = received.join().unwrap();
    assert!(
        received.contains("\"headers\":{\"cookie\":\"hidden-1\"}"),
        "{received}"
    );
}

#[test]
fn an_invalid_address_is_reported() {
    for address in [
        "",
        "127.0.0.1:80",
        "https://",
        "https://a@b",
        "http://",
        "ftp://x",
        "http://a@b",
        "http://x/?q",
    ] {
        let error = RemoteHandler::new(address).unwrap_err();
        assert_eq!(error, RemoteError::Address(address.into()));
    }
    assert!(RemoteHandler::new("http://[::1]:8081/base/").is_ok());
}
