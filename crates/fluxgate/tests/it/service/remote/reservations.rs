//! Reservations: the layer waits for them, and cancels them where they were made.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fluxgate_core::{Limiter, MemoryStore, RuleSets};
use fluxgate_tower::RateLimitLayer;
use serde_json::Value;

use super::{App, RULES, get, handler, until};
use crate::service::Service;
use crate::support::Dir;

#[tokio::test]
async fn a_reservation_of_the_local_limiter_is_cancelled_there() {
    let gone = fluxgate_testkit::ports::free();
    let limiter = Limiter::new(RuleSets::from_yaml(RULES).unwrap(), MemoryStore::default());
    let app = App::new(handler(gone.addr()).local_on_error(limiter.clone()));
    assert_eq!(app.get("/wait").await, 200);
    let reset_after = || {
        let state = fluxgate_core::task::ready(limiter.state("api", "wait", &[])).unwrap();
        state[0].reset_after.as_secs_f64().ceil() as u64
    };
    let waiter = tokio::spawn(async move { app.get("/wait").await });
    until("the reservation", || reset_after() > 600).await;
    waiter.abort();
    until("the cancellation", || reset_after() <= 600).await;
}

#[tokio::test]
async fn the_layer_waits_for_a_delay() {
    let service = Service::start(&[], RULES);
    let app = App::new(handler(service.address("api")));
    let start = tokio::time::Instant::now();
    for _ in 0..3 {
        assert_eq!(app.get("/soon").await, 200);
    }
    // The first passes at once, the others after 300 ms each.
    let took = start.elapsed();
    assert!(
        (Duration::from_millis(590)..Duration::from_secs(30)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test]
async fn an_abandoned_reservation_is_cancelled_at_the_service() {
    // The reservation is the capability: no token is needed.
    let dir = Dir::new();
    let token = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
    dir.write("tokens", format!("app:operator:{token}\n"));
    let config = format!("admin: {{ tokens_file: tokens }}\n{RULES}");
    for service in [
        Service::start(&[], RULES),
        Service::start_in(dir, &[], &config),
    ] {
        let handler = handler(service.address("api"));
        let layer = RateLimitLayer::with_handler(handler).rule_set("api");
        let app = App::with_layer(layer.max_concurrent_waits(1));
        let state = |rule: &str| {
            let headers = [("Authorization", "Bearer password")];
            let path = format!("/v1/state?rule_set=api&rule={rule}");
            let answer = service.http().request("GET", &path, &headers, "");
            let state: Value = serde_json::from_str(&answer.body).unwrap();
            let millis = state["bands"][0]["reset_after_ms"].as_u64().unwrap();
            millis.div_ceil(1000)
        };
        assert_eq!(app.get("/wait").await, 200);
        // A busy machine may take some of the ten minutes.
        for rule in ["wait", "dark"] {
            assert!(
                (500..=600).contains(&state(rule)),
                "{rule}: {}",
                state(rule)
            );
        }
        let waiter = {
            let app = app.clone();
            tokio::spawn(async move { app.get("/wait").await })
        };
        until("the reservation", || state("wait") > 600).await;
        // No other request may wait: it is refused at once and charges nothing.
        let (status, headers, body) = app.send(get("/wait")).await;
        assert_eq!(status, 429);
        assert!(headers.contains_key("retry-after"));
        assert!(
            body.contains("\"violated-policies\":[\"wait/b0\"]"),
            "{body}"
        );
        assert!(state("wait") <= 1200);
        waiter.abort();
        until("the cancellation", || state("wait") <= 600).await;
        // The shadow rule would have denied both, and gets nothing back.
        assert!(state("dark") > 500);
        assert_eq!(app.calls.load(Ordering::Relaxed), 1);
    }
}
