//! The layer: its responses, the headers it reads, and its calls to the inner service.

use bytes::Bytes;
use fluxgate_core::store::{
    Charged, Checks, HoldId, Micros, Reason, Settled, Settlement, Subject, Timestamp, Verdicts,
};
use fluxgate_core::{Band, Limiter, PatternError, RuleSets, Store, StoreError};
use fluxgate_tower::{
    FailedClosedStatus, HeaderFamilies, Identity, NetworkError, RateLimit, RateLimitLayer,
    ResetFormat, Source,
};
use http::{HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use crate::support::{Events, Inner, get, limiter, send, set_of};

const RULES: &str = "{ id: per-user, scope: per_user, bands: [ { id: burst, capacity: 2, window: 10s }, { id: sustained, capacity: 100, window: 1m } ] }";

#[tokio::test(start_paused = true)]
async fn responses_report_the_limits_and_denials_the_violated_ones() {
    let events = Events::default();
    let layer = RateLimitLayer::new(limiter(RULES))
        .rule_set("s")
        .headers(HeaderFamilies {
            reset: ResetFormat::Delta,
            ..HeaderFamilies::default()
        });
    let service = layer.layer(Inner::new(&events));
    let policy = "\"per-user/burst\";q=2;w=10,\"per-user/sustained\";q=100;w=60";
    for remaining in ["1", "0"] {
        let got = send(&service, get("/x")).await;
        assert_eq!((got.status, &*got.body), (200, "inner"));
        assert_eq!(got.header("x-ratelimit-limit"), Some("2"));
        assert_eq!(got.header("x-ratelimit-remaining"), Some(remaining));
        assert_eq!(got.header("ratelimit-policy"), Some(policy));
        assert_eq!(got.header("retry-after"), None);
    }
    let got = send(&service, get("/x")).await;
    assert_eq!((got.status, events.count()), (429, 2));
    assert_eq!(got.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(got.header("x-ratelimit-reset"), Some("10"));
    assert_eq!(got.header("ratelimit-policy"), Some(policy));
    assert_eq!(got.header("ratelimit"), Some("\"per-user/burst\";r=0;t=10"));
    assert_eq!(got.header("retry-after"), Some("5"));
    assert_eq!(got.header("content-type"), Some("application/problem+json"));
    assert_eq!(
        got.header("content-length"),
        Some(&*got.body.len().to_string())
    );
    let body: Value = serde_json::from_str(&got.body).unwrap();
    assert_eq!(
        body,
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "The quota for these requests is used up",
            "status": 429,
            "violated-policies": ["per-user/burst"],
            "retry_after_ms": 5000,
        })
    );
}

#[tokio::test(start_paused = true)]
async fn denials_may_have_the_body_type_of_the_inner_service() {
    let layer = RateLimitLayer::new(limiter(RULES)).rule_set("s");
    let wrapped = layer.clone().layer(Inner::new(&Events::default()));
    let service = layer.same_body().layer(Inner::new(&Events::default()));
    for expected in [(200, "inner"), (200, "inner")] {
        let response: Response<Full<Bytes>> = service.clone().oneshot(get("/x")).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert_eq!(
            (head.status.as_u16(), &*body),
            (expected.0, expected.1.as_bytes())
        );
        assert!(head.headers.contains_key("ratelimit"));
    }
    let (same, other) = (
        send(&service, get("/x")).await,
        send(&wrapped, get("/x")).await,
    );
    assert_eq!((same.status, &same.body), (429, &other.body));
    assert_eq!(same.headers, other.headers);
}

/// The header map of some responses must grow.
#[tokio::test(start_paused = true)]
async fn a_response_keeps_its_own_headers() {
    let inner = Inner::answering(&Events::default(), || {
        let mut response = Response::new(Full::<Bytes>::default());
        let own = [("set-cookie", "a"), ("set-cookie", "b"), ("x-last", "c")];
        for (name, value) in own {
            let value = HeaderValue::from_static(value);
            response.headers_mut().append(name, value);
        }
        response
    });
    let layer = RateLimitLayer::new(limiter(RULES)).rule_set("s");
    let got = send(&layer.layer(inner), get("/x")).await;
    let cookies: Vec<_> = got.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a", "b"]);
    assert_eq!(got.header("x-last"), Some("c"));
    assert_eq!(got.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(got.headers.len(), 8, "{:?}", got.headers);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_be_allowed_has_no_retry_after() {
    let rules = "{ id: a, scope: per_user, on_missing_key: deny, bands: [ { capacity: 1, window: 1s } ] }, \
                 { id: b, scope: global, cost: \"header:x-cost\", bands: [ { id: x, capacity: 5, window: 1s } ] }";
    let service = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .layer(Inner::new(&Events::default()));
    let mut request = get("/x");
    request.headers_mut().remove("x-user-id");
    request.headers_mut().insert("x-cost", "6".parse().unwrap());
    let got = send(&service, request).await;
    assert_eq!((got.status, got.header("retry-after")), (429, None));
    let body: Value = serde_json::from_str(&got.body).unwrap();
    assert_eq!(
        body,
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "This request can never pass the limit",
            "status": 429,
            "detail": "it lacks a part of the key that the rule counts by",
            "violated-policies": ["a/missing_key", "b/x"],
            "retry_after_ms": null,
        })
    );
    let mut request = get("/x");
    request.headers_mut().insert("x-cost", "6".parse().unwrap());
    let got = send(&service, request).await;
    let body: Value = serde_json::from_str(&got.body).unwrap();
    assert_eq!(body["title"], "This request can never pass the limit");
    assert_eq!(
        body["detail"],
        "its cost is above the capacity of the limit"
    );
    assert_eq!(body["violated-policies"], json!(["b/x"]));
}

#[tokio::test(start_paused = true)]
async fn rules_match_and_count_by_headers() {
    let rules = "{ id: a, key: [\"header:X-Tenant\"], match: { headers: { X-Plan: free } }, bands: [ { capacity: 1, window: 1h } ] }";
    let service = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .layer(Inner::new(&Events::default()));
    let ask = async |plan: &str, tenant: &str| {
        let mut request = get("/x");
        let headers = request.headers_mut();
        headers.insert("x-plan", plan.parse().unwrap());
        headers.insert("x-tenant", tenant.parse().unwrap());
        send(&service, request).await.status
    };
    assert_eq!(ask("free", "a").await, 200);
    assert_eq!(ask("free", "a").await, 429);
    assert_eq!(ask("free", "b").await, 200);
    assert_eq!(ask("paid", "a").await, 200);
    // A value that is not UTF-8 counts by its bytes.
    let not_utf8 = async |tenant: &[u8]| {
        let mut request = get("/x");
        let headers = request.headers_mut();
        headers.insert("x-plan", "free".parse().unwrap());
        let value = http::HeaderValue::from_bytes(tenant).unwrap();
        headers.insert("x-tenant", value);
        send(&service, request).await.status
    };
    assert_eq!(not_utf8(b"c\xff").await, 200);
    assert_eq!(not_utf8(b"c\xfe").await, 200);
    assert_eq!(not_utf8(b"c\xff").await, 429);
}

#[tokio::test(start_paused = true)]
async fn the_identity_may_come_from_other_headers() {
    let rules = "{ id: user, scope: per_user, bands: [ { capacity: 1, window: 1h } ] }, \
                 { id: key, scope: per_api_key, on_missing_key: skip, bands: [ { capacity: 1, window: 1h } ] }";
    let identity = Identity::default()
        .user(Source::header("X-Who"))
        .api_key(Source::header("X-Key"));
    let layer = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .identity(identity);
    let service = layer.layer(Inner::new(&Events::default()));
    let ask = async |name: &'static str, value: &str| {
        let mut request = get("/x");
        request.headers_mut().insert(name, value.parse().unwrap());
        send(&service, request).await.status
    };
    assert_eq!(ask("x-who", "a").await, 200);
    assert_eq!(ask("x-who", "a").await, 429);
    assert_eq!(ask("x-who", "b").await, 200);
    assert_eq!(ask("x-user-id", "c").await, 200, "no user is identified");
    assert_eq!(
        ask("x-user-id", "d").await,
        429,
        "no user is identified either"
    );
}

/// A store that always fails, and must be awaited.
#[derive(Debug)]
pub(crate) struct Broken;

fn broken<T>() -> Result<T, StoreError> {
    Err(StoreError {
        reason: Reason::TIMEOUT,
        message: "no answer".into(),
    })
}

impl Store for Broken {
    fn time(&self) -> Timestamp {
        Timestamp::default()
    }

    async fn decide(&self, _: &Checks<'_>) -> Result<Verdicts, StoreError> {
        tokio::task::yield_now().await;
        broken()
    }

    async fn refund(&self, _: Subject<'_>, _: &[Band], _: u64) -> Result<Verdicts, StoreError> {
        broken()
    }

    async fn cancel(
        &self,
        _: Subject<'_>,
        _: &[Band],
        _: u64,
        _: &[Charged],
    ) -> Result<(), StoreError> {
        broken()
    }

    async fn settle(&self, _: HoldId, _: Settlement<'_>) -> Result<Option<Settled>, StoreError> {
        broken()
    }

    async fn renew(&self, _: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        broken()
    }

    async fn reset(&self, _: Subject<'_>, _: &[Band]) -> Result<u64, StoreError> {
        broken()
    }

    async fn reset_rule(&self, _: Subject<'_>) -> Result<u64, StoreError> {
        broken()
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_store_never_fails_a_request() {
    for (on_error, statuses) in [
        ("allow", [200, 200]),
        ("deny", [503, 503]),
        ("local", [200, 429]),
    ] {
        let rules = format!(
            "rule_sets: {{ s: {{ on_error: {on_error}, rules: [ {{ id: r, scope: global, bands: [ {{ capacity: 1, window: 1h }} ] }} ] }} }}"
        );
        let limiter = Limiter::new(RuleSets::from_yaml(&rules).unwrap(), Broken);
        let events = Events::default();
        let service = RateLimitLayer::new(limiter)
            .rule_set("s")
            .layer(Inner::new(&events));
        for status in statuses {
            let got = send(&service, get("/x")).await;
            assert_eq!(got.status, status, "{on_error}");
            // One call if the request is allowed, and none otherwise.
            assert_eq!(
                events.take().len(),
                usize::from(status == 200),
                "{on_error}"
            );
            if on_error == "deny" {
                assert_eq!(got.header("retry-after"), Some("1"));
            }
        }
    }
}

/// Creates a layer whose store fails and whose rule set then denies.
pub(crate) fn failing_closed(
    layer: impl FnOnce(RateLimitLayer<Limiter<Broken>>) -> RateLimitLayer<Limiter<Broken>>,
) -> RateLimit<Inner, Limiter<Broken>> {
    let rules = "rule_sets: { s: { on_error: deny, rules: [ { id: r, scope: global, bands: [ { capacity: 1, window: 1h } ] } ] } }";
    let limiter = Limiter::new(RuleSets::from_yaml(rules).unwrap(), Broken);
    layer(RateLimitLayer::new(limiter).rule_set("s")).layer(Inner::new(&Events::default()))
}

#[tokio::test(start_paused = true)]
async fn a_denial_that_failed_closed_does_not_claim_that_the_quota_is_used_up() {
    let got = send(&failing_closed(|layer| layer), get("/x")).await;
    assert_eq!((got.status, got.header("retry-after")), (503, Some("1")));
    assert_eq!(got.header("content-type"), Some("application/problem+json"));
    for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-remaining"] {
        assert_eq!(got.header(name), None, "{name}");
    }
    assert_eq!(
        got.body,
        "{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\",\
         \"title\":\"Requests cannot be counted at the moment\",\"status\":503,\
         \"violated-policies\":[],\"outcome\":\"failed_closed\",\"retry_after_ms\":1000}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_fails_closed_may_answer_429() {
    let status = FailedClosedStatus::TooManyRequests;
    let service = failing_closed(|layer| layer.failed_closed_status(status));
    let got = send(&service, get("/x")).await;
    assert_eq!((got.status, got.header("retry-after")), (429, Some("1")));
    assert_eq!(
        got.body,
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
         \"title\":\"The quota for these requests is used up\",\"status\":429,\
         \"violated-policies\":[],\"retry_after_ms\":1000}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_grpc_client_gets_unavailable_when_the_layer_fails_closed() {
    let ask = async |status, expected| {
        let service = failing_closed(|layer| layer.failed_closed_status(status));
        let mut request = get("/x");
        let kind = "application/grpc".parse().unwrap();
        request.headers_mut().insert("content-type", kind);
        let got = send(&service, request).await;
        assert_eq!(
            (got.status, got.header("grpc-status")),
            (200, Some(expected))
        );
        got.header("grpc-message").unwrap().to_owned()
    };
    let message = ask(FailedClosedStatus::ServiceUnavailable, "14").await;
    assert!(message.contains("failed_closed"), "{message}");
    let message = ask(FailedClosedStatus::TooManyRequests, "8").await;
    assert!(message.contains("used up"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn services_of_one_layer_share_the_limits_and_new_rules_apply_at_once() {
    let limiter = limiter("{ id: r, scope: global, bands: [ { capacity: 1, window: 1h } ] }");
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let events = Events::default();
    let (one, two) = (
        layer.layer(Inner::new(&events)),
        layer.clone().layer(Inner::new(&events)),
    );
    assert_eq!(send(&one, get("/x")).await.status, 200);
    assert_eq!(send(&two, get("/x")).await.status, 429);
    let rules = "{ id: r, key: [\"header:x-new\"], bands: [ { capacity: 1, window: 1h } ] }";
    limiter.replace_rules(set_of(rules)).await.unwrap();
    for (value, status) in [("a", 200), ("b", 200), ("a", 429)] {
        let mut request = get("/x");
        request
            .headers_mut()
            .insert("x-new", value.parse().unwrap());
        assert_eq!(send(&two, request).await.status, status, "{value}");
    }
}

#[test]
#[should_panic(expected = "a path pattern must begin with `/`; `api` does not")]
fn an_invalid_pattern_panics() {
    let _ = RateLimitLayer::new(limiter(RULES)).include(["api"]);
}

#[test]
#[should_panic(expected = "`10.0.0.0/33` is not a network")]
fn an_invalid_network_panics() {
    let _ = RateLimitLayer::new(limiter(RULES)).trusted_proxies(["10.0.0.0/33"]);
}

#[tokio::test(start_paused = true)]
async fn invalid_settings_are_errors_of_the_fallible_methods() {
    let layer = || RateLimitLayer::new(limiter(RULES)).rule_set("s");
    let no_slash = PatternError::NoSlash("api".into());
    assert_eq!(
        layer().try_include(["/a", "api"]).unwrap_err(),
        no_slash.clone()
    );
    assert_eq!(layer().try_exclude(["api"]).unwrap_err(), no_slash);
    let error = layer().try_trusted_proxies(["::1", "10.0.0.0/33"]);
    let error = error.unwrap_err();
    assert_eq!(error, NetworkError::Invalid("10.0.0.0/33".into()));
    assert!(error.to_string().starts_with("`10.0.0.0/33` is not"));

    let layer = layer().try_include(["/api/**"]).unwrap();
    let layer = layer.try_exclude(["/api/free"]).unwrap();
    let layer = layer.peer(|_| Some([10, 0, 0, 1].into()));
    let layer = layer.try_trusted_proxies(["10.0.0.1"]).unwrap();
    let service = layer
        .customize(|context, request| {
            // The address of the context shows which proxies the layer trusts.
            let forwarded = request.headers.contains_key("x-forwarded-for");
            let ip = context.clone().build().ip().unwrap().to_string();
            assert_eq!(ip, if forwarded { "1.2.3.4" } else { "10.0.0.1" });
            context
        })
        .layer(Inner::new(&Events::default()));
    for (path, is_limited) in [("/api/x", true), ("/api/free", false), ("/x", false)] {
        let got = send(&service, get(path)).await;
        assert_eq!(got.header("ratelimit").is_some(), is_limited, "{path}");
    }
    let mut request = get("/api/x");
    let client = HeaderValue::from_static("1.2.3.4");
    request.headers_mut().insert("x-forwarded-for", client);
    assert_eq!(send(&service, request).await.status, 200);
}
