//! The headers of several layers or filters on one response.

use bytes::Bytes;
use fluxgate_core::task::ready;
use fluxgate_core::{Decision, RequestContext};
use fluxgate_http::LimitHeaders;
use fluxgate_tower::{HeaderFamilies, RateLimitLayer};
use http::{HeaderMap, Response};
use http_body_util::Full;
use tower::Layer;

use crate::support::{Events, Inner, get, limiter, send};

fn rule(id: &str, capacity: u64) -> String {
    format!("{{ id: {id}, scope: global, bands: [ {{ capacity: {capacity}, window: 1h }} ] }}")
}

#[tokio::test(start_paused = true)]
async fn lists_are_joined_and_the_tighter_limit_is_reported() {
    for (outer, inner, tightest) in [(5, 2, "1"), (2, 5, "1")] {
        let outer = RateLimitLayer::new(limiter(&rule("outer", outer))).rule_set("s");
        let inner = RateLimitLayer::new(limiter(&rule("inner", inner))).rule_set("s");
        let events = Events::default();
        let service = outer.layer(inner.layer(Inner::new(&events)));
        let got = send(&service, get("/x")).await;
        assert_eq!((got.status, events.count()), (200, 1));
        assert_eq!(got.header("x-ratelimit-remaining"), Some(tightest));
        assert_eq!(got.header("x-ratelimit-limit"), Some("2"));
        let policy = got.header("ratelimit-policy").unwrap();
        let order = (
            policy.find("\"outer/b0\"").unwrap(),
            policy.find("\"inner/b0\"").unwrap(),
        );
        assert!(order.0 < order.1, "{policy}");
        assert_eq!(got.header("ratelimit").unwrap().matches(";r=").count(), 2);
        assert_eq!(got.headers.get_all("ratelimit").iter().count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_headers_of_an_inner_denial_are_kept() {
    let outer = RateLimitLayer::new(limiter(&rule("outer", 100))).rule_set("s");
    let inner = RateLimitLayer::new(limiter(&rule("inner", 1))).rule_set("s");
    let events = Events::default();
    let service = outer.layer(inner.layer(Inner::new(&events)));
    assert_eq!(send(&service, get("/x")).await.status, 200);
    let got = send(&service, get("/x")).await;
    assert_eq!((got.status, events.count()), (429, 1));
    assert_eq!(got.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(got.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(got.header("retry-after"), Some("3600"));
    assert!(got.body.contains("inner/b0"), "{}", got.body);
}

#[tokio::test(start_paused = true)]
async fn an_outer_denial_does_not_charge_the_inner_limit() {
    let outer = RateLimitLayer::new(limiter(&rule("outer", 1))).rule_set("s");
    let counted = limiter(&rule("inner", 9));
    let inner = RateLimitLayer::new(counted.clone()).rule_set("s");
    let service = outer.layer(inner.layer(Inner::new(&Events::default())));
    for status in [200, 429, 429] {
        assert_eq!(send(&service, get("/x")).await.status, status);
    }
    let states = counted.state("s", "inner", &[]).await.unwrap();
    assert_eq!(states[0].remaining, 8);
}

#[tokio::test(start_paused = true)]
async fn limits_that_the_application_reports_are_merged() {
    let tight = || {
        let response = Response::builder()
            .header("x-ratelimit-limit", "7")
            .header("x-ratelimit-remaining", "0")
            .header("x-ratelimit-reset", "99")
            .header("ratelimit-policy", "\"app\";q=7")
            .header("ratelimit-policy", "\"app2\";q=8");
        response.body(Full::new(Bytes::new())).unwrap()
    };
    let layer = RateLimitLayer::new(limiter(&rule("a", 5))).rule_set("s");
    let service = layer.layer(Inner::answering(&Events::default(), tight));
    let got = send(&service, get("/x")).await;
    assert_eq!(got.header("x-ratelimit-limit"), Some("7"));
    assert_eq!(got.header("x-ratelimit-reset"), Some("99"));
    let policy = "\"a/b0\";q=5;w=3600,\"app\";q=7,\"app2\";q=8";
    assert_eq!(got.header("ratelimit-policy"), Some(policy));
}

fn decisions(capacities: &[u64], cost: u64) -> Vec<Decision> {
    let context = RequestContext::builder().cost(cost).build();
    let rules = capacities.iter().enumerate();
    rules
        .map(|(index, capacity)| {
            let limiter = limiter(&rule(&format!("r{index}"), *capacity));
            ready(limiter.check("s", &context))
        })
        .collect()
}

fn headers_of(decisions: &[Decision]) -> (LimitHeaders<Decision>, HeaderMap) {
    let mut limits = LimitHeaders::default();
    for decision in decisions {
        limits.push(HeaderFamilies::default(), decision.clone());
    }
    let mut headers = HeaderMap::new();
    headers.insert("x-ratelimit-limit", "999".parse().unwrap());
    headers.insert("ratelimit", "\"upstream\";r=1".parse().unwrap());
    headers.insert("retry-after", "77".parse().unwrap());
    limits.write(&mut headers);
    (limits, headers)
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_filters_writes_one_set_of_headers() {
    let (limits, headers) = headers_of(&decisions(&[9, 3, 5], 2));
    assert_eq!(headers["x-ratelimit-limit"], "3");
    assert_eq!(headers["x-ratelimit-remaining"], "1");
    let policy = "\"r0/b0\";q=9;w=3600,\"r1/b0\";q=3;w=3600,\"r2/b0\";q=5;w=3600";
    assert_eq!(headers["ratelimit-policy"], policy);
    assert!(
        headers["ratelimit"]
            .to_str()
            .unwrap()
            .starts_with("\"r0/b0\";r=7")
    );
    assert_eq!(headers["retry-after"], "77", "the upstream's own");
    for (name, replaced) in [
        ("X-RateLimit-Limit", true),
        ("x-ratelimit-reset", true),
        ("RateLimit", true),
        ("ratelimit-policy", true),
        ("retry-after", false),
        ("content-type", false),
    ] {
        assert_eq!(limits.replaces(name.as_bytes()), replaced, "{name}");
    }
    let mut text = Vec::new();
    limits.write_text(&mut text);
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(
        lines.contains(&&*format!("ratelimit-policy: {policy}")),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_reported_before_a_limit_with_less_remaining() {
    // The first allows and has nothing left; the second denies and has 3 left.
    let allowed = decisions(&[4], 4);
    let limiter = limiter(&rule("r1", 5));
    let context = |cost| RequestContext::builder().cost(cost).build();
    let _ = ready(limiter.check("s", &context(2)));
    let denied = ready(limiter.check("s", &context(4)));
    let (limits, headers) = headers_of(&[allowed[0].clone(), denied]);
    assert_eq!(headers["x-ratelimit-limit"], "5");
    assert_eq!(headers["x-ratelimit-remaining"], "3");
    assert_eq!(headers["retry-after"], "720");
    assert!(limits.replaces(b"Retry-After"));
}

#[tokio::test(start_paused = true)]
async fn a_single_filter_writes_its_own_headers() {
    let decision = decisions(&[9], 2);
    let mut limits = LimitHeaders::default();
    assert!(limits.is_empty());
    let (mut own, mut chained) = (Vec::new(), Vec::new());
    HeaderFamilies::default().write_text(&decision[0], &mut own);
    limits.push(HeaderFamilies::default(), decision[0].clone());
    limits.write_text(&mut chained);
    assert_eq!(own, chained);
}
