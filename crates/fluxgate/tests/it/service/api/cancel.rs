//! `POST /v1/cancel`, which gives up a check that waits.

use fluxgate_testkit::RedisServer;
use serde_json::{Value, json};

use super::{Service, json_of};

const RULES: &str = "
rule_sets:
  api:
    rules:
      - { id: queue, scope: per_user, on_exceed: wait, max_wait: 1h, bands: [ { id: b, capacity: 5, window: 500s } ] }
      - { id: day, scope: per_user, algorithm: fixed_window, bands: [ { capacity: 1000, window: 300d } ] }
      - { id: year, scope: per_user, algorithm: fixed_window, bands: [ { capacity: 1000, calendar: year } ] }
";

/// Starts the service on the memory store and on Redis, one after the other.
fn on_each_store(run: impl Fn(&Service)) {
    let server = RedisServer::start();
    let redis = format!(
        "store: {{ redis: {{ url: {:?}, deadline: 10s }} }}\n",
        server.url()
    );
    for store in ["", &redis] {
        run(&Service::start(&[], &(store.to_owned() + RULES)));
    }
}

fn post(service: &Service, path: &str, body: &Value) -> (u16, Value) {
    let answer = service.http().post(path, &body.to_string());
    (answer.status, json_of(&answer))
}

fn check(service: &Service, mut body: Value) -> Value {
    body["user"] = json!("u");
    let (status, decision) = post(service, "/v1/check", &body);
    assert_eq!(
        (status, &decision["allowed"]),
        (200, &json!(true)),
        "{decision}"
    );
    decision
}

fn cancel(service: &Service, decision: &Value) -> (u16, Value) {
    let body = json!({ "reservation": decision["reservation"] });
    post(service, "/v1/cancel", &body)
}

fn remaining(service: &Service, rule: &str) -> Value {
    let path = format!("/v1/state?rule_set=api&rule={rule}&identity=u");
    json_of(&service.http().get(&path))["bands"][0]["remaining"].clone()
}

#[test]
fn units_return_unless_a_later_request_was_queued_behind_them() {
    on_each_store(|service| {
        assert_eq!(check(service, json!({ "cost": 5 }))["delay_ms"], 0);
        let reserved = check(service, json!({ "cost": 3, "wait": true }));
        assert!(reserved["delay_ms"].as_u64().unwrap() > 250_000);
        let behind = check(service, json!({}));
        let left = remaining(service, "day");
        assert_eq!(
            cancel(service, &reserved),
            (200, json!({ "cancelled": true }))
        );
        // Two of the three return: one was queued behind them.
        let next = check(service, json!({}))["delay_ms"].as_u64().unwrap();
        let of_behind = behind["delay_ms"].as_u64().unwrap();
        let two_earlier = of_behind - 130_000..=of_behind - 99_000;
        assert!(two_earlier.contains(&next), "{next} {of_behind}");
        let units = |left: &Value| left.as_u64().unwrap();
        for rule in ["day", "year"] {
            assert_eq!(
                units(&remaining(service, rule)),
                units(&left) + 3 - 1,
                "{rule}"
            );
        }
    });
}

#[test]
fn a_reservation_is_cancelled_once() {
    on_each_store(|service| {
        check(service, json!({ "cost": 5 }));
        let reserved = check(service, json!({ "wait": true }));
        assert_eq!(cancel(service, &reserved).0, 200);
        let left = remaining(service, "day");
        for _ in 0..9 {
            let (status, problem) = cancel(service, &reserved);
            assert_eq!(status, 404, "{problem}");
        }
        assert_eq!(remaining(service, "day"), left);
        let next = check(service, json!({}))["delay_ms"].as_u64().unwrap();
        assert!(
            (50_000..=100_000).contains(&next),
            "one place is free: {next}"
        );
    });
}

#[test]
fn a_reservation_and_its_hold_end_together() {
    on_each_store(|service| {
        check(service, json!({ "cost": 5 }));
        let held = json!({ "cost": 2, "wait": true, "hold": "60s" });
        for (first, second) in [("/v1/cancel", "/v1/release"), ("/v1/release", "/v1/cancel")] {
            let left = remaining(service, "day");
            let reserved = check(service, held.clone());
            let body = |path| match path {
                "/v1/cancel" => json!({ "reservation": reserved["reservation"] }),
                _ => json!({ "hold": reserved["hold"] }),
            };
            assert_eq!(post(service, first, &body(first)).0, 200);
            assert_eq!(post(service, second, &body(second)).0, 404);
            assert_eq!(
                remaining(service, "day"),
                left,
                "{first}: the units return once"
            );
        }
    });
}

#[test]
fn only_a_delayed_decision_of_a_caller_that_waits_has_a_reservation() {
    let service = Service::start(&[], RULES);
    let at_once = check(&service, json!({ "cost": 5, "wait": true }));
    assert_eq!(at_once.get("reservation"), None, "{at_once}");
    let delayed = check(&service, json!({}));
    assert_eq!(delayed.get("reservation"), None, "{delayed}");
    let (_, denied) = post(
        &service,
        "/v1/check",
        &json!({ "user": "u", "wait": false }),
    );
    assert_eq!(
        (&denied["allowed"], &denied["violated"]),
        (&json!(false), &json!(["queue/b"]))
    );
    assert_eq!(denied.get("reservation"), None, "{denied}");
}

#[test]
fn invalid_calls_are_refused() {
    let service = Service::start(&[], RULES);
    for (body, status, detail) in [
        (r#"{}"#, 400, "`reservation`"),
        (r#"{"reservation":null}"#, 400, "`reservation`"),
        (r#"{"reservation":7}"#, 400, "reservation"),
        (r#"{"reservation":"x","rule_set":"api"}"#, 400, "rule_set"),
        (r#"[]"#, 400, "object"),
        (r#"{"reservation":"x"}"#, 404, "no such reservation"),
        (
            r#"{"reservation":"AERUKZ4JVPG66AJDIVTYTK6N54"}"#,
            404,
            "no such reservation",
        ),
    ] {
        let answer = service.http().post("/v1/cancel", body);
        assert_eq!(answer.status, status, "{body}");
        assert!(answer.body.contains(detail), "{body}: {}", answer.body);
    }
    assert_eq!(service.http().post("/v1/give_back", "{}").status, 404);
}
