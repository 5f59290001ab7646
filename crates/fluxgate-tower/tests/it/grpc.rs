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
        assert_eq!(got.header("retry-after"), Some("60"));
        assert_eq!(got.header("x-ratelimit-remaining"), Some("0"));
    }
    for content_type in ["application/json", "application/grp", "text/plain"] {
        assert_eq!(ask(content_type).await.status, 429, "{content_type}");
    }
}
