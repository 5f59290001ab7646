//! Requests that frameworks read as another one, decided by a service.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fluxgate_core::{Limiter, MemoryStore, RuleSets};
use fluxgate_http::{Identity, Source};
use fluxgate_testkit::readings::{READINGS, SentRequest, Treatment};
use fluxgate_tower::{RateLimitLayer, RemoteHandler};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::Full;
use tower::util::service_fn;
use tower::{Layer, ServiceExt};

use super::handler;
use crate::service::Service;

/// Returns a rule set for each reading, by number, with a limit of one.
fn rule_sets(prefix: &str) -> String {
    let mut sets = String::new();
    for (number, reading) in READINGS.iter().enumerate() {
        let rule = reading.rule;
        writeln!(
            sets,
            "  {prefix}{number}: {{ rules: [ {{ id: r, bands: [ {{ capacity: 1, window: 1h }} ], {rule} }} ] }}"
        )
        .unwrap();
    }
    sets
}

/// The layer does not know the rules, and rejects what a limiter in its process would reject.
#[tokio::test]
async fn a_remote_layer_counts_what_frameworks_read() {
    let prefixes = ["all-", "some-", "local-"];
    let rules = format!("rule_sets:\n{}", prefixes.map(rule_sets).concat());
    let service = Service::start(&[], &rules);
    let service = handler(service.address("api"));
    let limiter = Limiter::new(RuleSets::from_yaml(&rules).unwrap(), MemoryStore::default());
    let some = service.clone().headers(["x-cost", "x-plan"]);
    let local = service.clone().headers(["x-cost"]).local_on_error(limiter);
    for (prefix, handler) in prefixes.into_iter().zip([service, some, local]) {
        for number in 0..READINGS.len() {
            check(&handler, &format!("{prefix}{number}"), number).await;
        }
    }
}

async fn check(handler: &RemoteHandler, rule_set: &str, number: usize) {
    let reading = &READINGS[number];
    let seen: Arc<Mutex<HeaderMap>> = Arc::default();
    let api_key: Source = reading.api_key.parse().unwrap();
    let layer = RateLimitLayer::with_handler(handler.clone())
        .rule_set(rule_set)
        .identity(Identity::default().api_key(api_key));
    let service = layer.layer(service_fn({
        let seen = Arc::clone(&seen);
        move |request: Request<Full<Bytes>>| {
            *seen.lock().unwrap() = request.headers().clone();
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
        }
    }));
    let send = async |sent: &SentRequest| {
        let mut request = Request::new(Full::default());
        *request.method_mut() = Method::from_bytes(sent.method.as_bytes()).unwrap();
        *request.uri_mut() = sent.target.parse().unwrap();
        for (name, value) in sent.headers {
            let name = HeaderName::try_from(*name).unwrap();
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            request.headers_mut().append(name, value);
        }
        service.clone().oneshot(request).await.unwrap().status()
    };
    assert_eq!(send(&reading.plain).await, 200, "{rule_set}: {reading:?}");
    seen.lock().unwrap().clear();
    let status = send(&reading.spelled).await;
    match reading.treatment {
        Treatment::Counted => assert_eq!(status, 429, "{rule_set}: {reading:?}"),
        Treatment::Rejected => assert_eq!(status, 400, "{rule_set}: {reading:?}"),
        Treatment::Removed => {
            assert_eq!(status, 200, "{rule_set}: {reading:?}");
            let (name, _) = reading.spelled.headers.last().unwrap();
            let seen = seen.lock().unwrap();
            assert_eq!(seen.get(*name), None, "{rule_set}: {reading:?}");
        }
        // The layer does not write the headers of proxies.
        Treatment::RemovedByProxies => assert_eq!(status, 200, "{rule_set}: {reading:?}"),
    }
}

/// Without `headers`, the service may count by any header. Lists may have several lines.
#[tokio::test]
async fn any_header_may_count_unless_some_are_selected() {
    let rules = "rule_sets: { s: { rules: [ { id: r, key: ['header:X-Tenant'], bands: [ { capacity: 9, window: 1h } ] } ] } }";
    let service = Service::start(&[], rules);
    let all = handler(service.address("api"));
    let one = all.clone().headers(["X-Tenant"]);
    let statuses = async |lines: &[(&'static str, &'static str)]| {
        let mut statuses = Vec::new();
        for handler in [&all, &one] {
            let layer = RateLimitLayer::with_handler(handler.clone()).rule_set("s");
            let mut request = super::get("/x");
            for (name, value) in lines {
                let value = HeaderValue::from_static(value);
                request.headers_mut().append(*name, value);
            }
            let service = layer.layer(super::Inner(Arc::default()));
            statuses.push(service.oneshot(request).await.unwrap().status().as_u16());
        }
        statuses
    };
    for (lines, expected) in [
        (&[("x-tenant", "a"), ("x-tenant", "b")][..], [400, 400]),
        (&[("x-tenant", "a"), ("x-tenant", "a")], [200, 200]),
        (&[("x-other", "a"), ("x-other", "b")], [400, 200]),
        (&[("x-other", "=?utf-8?q?a?=")], [400, 200]),
        (&[("via", "a"), ("via", "b")], [200, 200]),
        (
            &[("x-forwarded-for", "a"), ("x-forwarded-for", "b")],
            [200, 200],
        ),
        (&[("cookie", "a=1"), ("cookie", "b=1")], [200, 200]),
    ] {
        assert_eq!(statuses(lines).await, expected, "{lines:?}");
    }
}
