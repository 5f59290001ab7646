//! Slots that the service has granted.

use http_body_util::BodyExt;
use tower::ServiceExt;

use super::{App, get, handler, until};
use crate::service::Service;
use crate::service::telemetry::Metrics;

const RULES: &str = "
rule_sets:
  api:
    rules:
      - { id: exports, scope: global, algorithm: concurrency, hold: 10s, bands: [ { capacity: 1 } ] }
";

#[tokio::test]
async fn slots_are_held_and_renewed_until_the_response_has_ended() {
    let service = Service::start(&[], RULES);
    let app = App::new(handler(service.address("api")));
    let response = app.service.clone().oneshot(get("/export")).await.unwrap();
    assert_eq!(response.status(), 200);
    let held =
        || Metrics::of(&service).get("fluxgate_slots_held{rule_set=\"api\",rule=\"exports\"}");
    assert_eq!(held(), 1);
    let begun = tokio::time::Instant::now();
    // Past the end of the hold, it is held only if it was renewed.
    while begun.elapsed() < std::time::Duration::from_millis(10_500) {
        assert_eq!(app.get("/export").await, 429);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    response.into_body().collect().await.unwrap();
    until("the slot is free", || held() == 0).await;
    assert_eq!(app.get("/export").await, 200);
    until("the slot is free again", || held() == 0).await;
    assert_eq!(Metrics::of(&service).get("fluxgate_holds_expired_total"), 0);
}
