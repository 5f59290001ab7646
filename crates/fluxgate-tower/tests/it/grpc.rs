//! Denials that gRPC clients understand.

use fluxgate_tower::RateLimitLayer;
use tower::Layer;

use crate::support::{Events, Inner, get, limiter, send};

#[tokio::test(start_paused = true)]
async fn a_grpc_request_is_denied_with_a_grpc_status() {
    let rules = "{ id: r, scope: global, bands: [ { capacity: 1, window: 1m } ] }";
    let service = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .layer(Inner::new(&Events::default()));
    let ask = async |content_type: &str| {
        let mut request = get("/p.S/M");
        request
            .headers_mut()
            .insert("content-type", content_type.parse().unwrap());
        send(&service, request).await
    };
    assert_eq!(ask("application/grpc").await.header("grpc-status"), None);
    for content_type in [
        "application/grpc",
        "application/grpc+proto",
        "Application/GRPC-web",
    ] {
        let got = ask(content_type).await;
        assert_eq!((got.status, &*got.body), (200, ""), "{content_type}");
        assert_eq!(got.header("grpc-status"), Some("8"));
        let message = "the quota is used up; retry after 60000 ms";
        assert_eq!(got.header("grpc-message"), Some(message));
        assert_eq!(got.header("content-type"), Some(content_type));
        assert_eq!(got.header("grpc-retry-pushback-ms"), Some("60000"));
        assert_eq!(got.header("retry-after"), Some("60"));
        assert_eq!(got.header("x-ratelimit-remaining"), Some("0"));
    }
    for content_type in ["application/json", "application/grpcs", "text/plain"] {
        assert_eq!(ask(content_type).await.status, 429, "{content_type}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_request_has_its_own_status_and_no_limit_headers() {
    let rules = "{ id: no, action: deny, status: 451, match: { path: [\"/no/{id}\"] } }, \
                 { id: yes, action: allow, match: { path: [/yes] } }, \
                 { id: r, scope: global, bands: [ { capacity: 1, window: 1m } ] }";
    let events = Events::default();
    let service = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .layer(Inner::new(&events));
    let mut call = get("/no/1");
    let content_type = "application/grpc".parse().unwrap();
    call.headers_mut().insert("content-type", content_type);
    let refused = send(&service, call).await;
    assert_eq!(
        (refused.status, refused.header("grpc-status")),
        (200, Some("7"))
    );
    let message = Some("a rule forbids this request");
    assert_eq!(refused.header("grpc-message"), message);
    assert_eq!(refused.header("grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!(refused.header("retry-after"), None);

    let refused = send(&service, get("/no/1")).await;
    assert_eq!(refused.status, 451);
    let names: Vec<_> = refused.headers.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["content-type", "content-length"]);
    assert!(
        refused.body.contains("\"violated-policies\":[\"no/deny\"]"),
        "{}",
        refused.body
    );
    assert!(refused.body.contains("\"status\":451"), "{}", refused.body);
    assert_eq!(events.count(), 0);
    for _ in 0..2 {
        let exempt = send(&service, get("/yes")).await;
        assert_eq!((exempt.status, exempt.header("ratelimit")), (200, None));
    }
    assert_eq!(events.count(), 2);
}
