//! Waiting, on a paused clock.

use std::time::Duration;

use fluxgate_tower::RateLimitLayer;
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep};
use tower::Layer;

use crate::support::{Events, Inner, TestLimiter, get, limiter, send};

/// Allows one request in 100 ms.
fn one_in_100_ms(max_wait: &str) -> TestLimiter {
    limiter(&format!(
        "{{ id: r, scope: global, on_exceed: wait, max_wait: {max_wait}, bands: [ {{ capacity: 1, window: 100ms }} ] }}"
    ))
}

/// Sends `count` requests at once. Returns the milliseconds and the status of each, in the
/// order in which they were sent.
async fn flood(
    layer: &RateLimitLayer<TestLimiter>,
    events: &Events,
    count: usize,
) -> Vec<(u128, u16)> {
    let service = layer.layer(Inner::new(events));
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for index in 0..count {
        let service = service.clone();
        tasks.spawn(async move {
            let got = send(&service, get(&format!("/{index}"))).await;
            (index, (start.elapsed().as_millis(), got.status))
        });
    }
    let mut done = tasks.join_all().await;
    done.sort_unstable();
    done.into_iter().map(|(_, it)| it).collect()
}

#[tokio::test(start_paused = true)]
async fn fifty_beyond_the_rate_are_served_in_order_at_the_rate() {
    let layer = RateLimitLayer::new(one_in_100_ms("5s")).rule_set("s");
    let events = Events::default();
    let done = flood(&layer, &events, 51).await;
    for (index, (millis, status)) in done.iter().enumerate() {
        let due = u128::try_from(index).unwrap() * 100;
        assert_eq!(*status, 200);
        // Never early. The timer has a resolution of one millisecond.
        assert!(
            (due..=due + 2).contains(millis),
            "{index} after {millis} ms"
        );
    }
    let served = events.take();
    let order: Vec<_> = served
        .iter()
        .map(|it| it.split(' ').next().unwrap().to_owned())
        .collect();
    let expected: Vec<_> = (0..51).map(|index| format!("/{index}")).collect();
    assert_eq!(order, expected);
}

#[tokio::test(start_paused = true)]
async fn the_101st_waiter_is_denied_at_once_and_charged_nothing() {
    let limiter = one_in_100_ms("1h");
    let layer = RateLimitLayer::new(limiter.clone()).rule_set("s");
    let events = Events::default();
    let done = flood(&layer, &events, 103).await;
    assert_eq!(
        events.count(),
        101,
        "one request at once, and a hundred waiters"
    );
    assert!(done[..101].iter().all(|(_, status)| *status == 200));
    assert_eq!(done[101..], [(0, 429), (0, 429)]);
    // The last waiter proceeded at 10 s, and nothing is reserved after it.
    assert_eq!(done[100].0 / 100, 100);
    sleep(Duration::from_millis(101)).await;
    let states = limiter.state("s", "r", &[]).await.unwrap();
    assert_eq!(
        (states[0].remaining, states[0].reset_after.as_micros()),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_without_a_permit_gets_a_retry_after() {
    let layer = RateLimitLayer::new(one_in_100_ms("1h"))
        .rule_set("s")
        .max_concurrent_waits(0);
    let service = layer.layer(Inner::new(&Events::default()));
    assert_eq!(send(&service, get("/x")).await.status, 200);
    for _ in 0..3 {
        let got = send(&service, get("/x")).await;
        assert_eq!(got.status, 429);
        assert_eq!(got.header("retry-after"), Some("1"));
        let body: serde_json::Value = serde_json::from_str(&got.body).unwrap();
        assert_eq!(body["retry_after_ms"], 100, "the reservation is cancelled");
        assert_eq!(body["violated-policies"], serde_json::json!(["r/b0"]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_beyond_max_wait_is_denied_at_once() {
    let layer = RateLimitLayer::new(one_in_100_ms("1s")).rule_set("s");
    let events = Events::default();
    let done = flood(&layer, &events, 13).await;
    assert_eq!(events.count(), 11);
    assert!(done[..11].iter().all(|(_, status)| *status == 200));
    assert_eq!(done[11..], [(0, 429), (0, 429)]);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_frees_its_units_and_its_permit() {
    let limiter = one_in_100_ms("1h");
    let layer = RateLimitLayer::new(limiter.clone())
        .rule_set("s")
        .max_concurrent_waits(1);
    let events = Events::default();
    let service = layer.layer(Inner::new(&events));
    assert_eq!(send(&service, get("/first")).await.status, 200);
    let waiter = {
        let service = service.clone();
        tokio::spawn(async move { send(&service, get("/gone")).await })
    };
    tokio::task::yield_now().await;
    assert_eq!(send(&service, get("/no-permit")).await.status, 429);
    advance(Duration::from_millis(40)).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    // The next request gets both, and waits for the rest of the 100 ms.
    let start = Instant::now();
    assert_eq!(send(&service, get("/next")).await.status, 200);
    let waited = start.elapsed().as_millis();
    assert!((60..=62).contains(&waited), "{waited}");
    let paths: Vec<_> = events.take().iter().map(|it| it[..5].to_owned()).collect();
    assert_eq!(paths, ["/firs", "/next"]);
}

#[tokio::test(start_paused = true)]
async fn a_shaped_bucket_spaces_requests_evenly() {
    let rules = "{ id: r, scope: global, algorithm: leaky_bucket, shape: true, bands: [ { capacity: 5, window: 500ms } ] }";
    let layer = RateLimitLayer::new(limiter(rules)).rule_set("s");
    let events = Events::default();
    let done = flood(&layer, &events, 6).await;
    for (index, (millis, status)) in done[..5].iter().enumerate() {
        let due = u128::try_from(index).unwrap() * 100;
        assert_eq!(*status, 200);
        assert!(
            (due..=due + 2).contains(millis),
            "{index} after {millis} ms"
        );
    }
    assert_eq!(done[5], (0, 429));
}

#[tokio::test(start_paused = true)]
async fn denials_by_a_window_are_decided_again_when_it_opens() {
    for algorithm in ["fixed_window", "sliding_window", "sliding_log"] {
        let rules = format!(
            "{{ id: r, scope: global, algorithm: {algorithm}, on_exceed: wait, max_wait: 3s, bands: [ {{ capacity: 2, window: 1s }} ] }}"
        );
        let layer = RateLimitLayer::new(limiter(&rules)).rule_set("s");
        let events = Events::default();
        let done = flood(&layer, &events, 6).await;
        let mut statuses: Vec<_> = done.iter().map(|(_, status)| *status).collect();
        statuses.sort_unstable();
        assert_eq!(done[..2], [(0, 200), (0, 200)], "{algorithm}");
        // All four are decided again at the same instant, and those that do not fit are denied.
        let late: Vec<_> = done[2..]
            .iter()
            .filter(|(_, status)| *status == 200)
            .collect();
        assert!((1..=2).contains(&late.len()), "{algorithm}: {done:?}");
        assert!(
            late.iter().all(|(millis, _)| *millis >= 1000),
            "{algorithm}: {done:?}"
        );
        assert!(
            done.iter().all(|(millis, _)| *millis <= 2010),
            "{algorithm}: {done:?}"
        );
        assert_eq!(events.count(), 2 + late.len(), "{algorithm}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_that_opens_too_late_denies_at_once() {
    let rules = "{ id: r, scope: global, algorithm: fixed_window, on_exceed: wait, max_wait: 1s, bands: [ { capacity: 1, window: 1h } ] }";
    let layer = RateLimitLayer::new(limiter(rules)).rule_set("s");
    let done = flood(&layer, &Events::default(), 2).await;
    assert_eq!(done, [(0, 200), (0, 429)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_reservation_after_a_window() {
    let rules = "{ id: w, scope: global, algorithm: fixed_window, on_exceed: wait, max_wait: 2s, bands: [ { capacity: 1, window: 1s } ] }, \
                 { id: b, scope: global, on_exceed: wait, max_wait: 5s, bands: [ { capacity: 1, window: 3s } ] }";
    let layer = RateLimitLayer::new(limiter(rules)).rule_set("s");
    let done = flood(&layer, &Events::default(), 2).await;
    assert_eq!(done[0], (0, 200));
    // One second for the window, then the rest of the bucket's delay.
    assert!(
        (3000..=3003).contains(&done[1].0) && done[1].1 == 200,
        "{done:?}"
    );
}
