//! `POST /v1/give_back`: a check that reserved, cancelled.

use fluxgate_testkit::RedisServer;
use serde_json::Value;

use super::{RULES, json, store_in};
use crate::service::Service;

const WAITS: &str = "
rule_sets:
  api:
    rules:
      - { id: queue, scope: per_user, on_exceed: wait, max_wait: 1h, bands: [ { id: b, capacity: 5, window: 500s } ] }
      - { id: day, scope: per_user, algorithm: fixed_window, bands: [ { capacity: 1000, window: 300d } ] }
";

#[test]
fn what_nobody_was_queued_behind_returns_on_every_store() {
    let server = RedisServer::start();
    let redis = store_in(&server);
    for store in ["", &redis] {
        let service = Service::start(&[], &(store.to_owned() + WAITS));
        let mut http = service.http();
        let asked = |cost: u64| json!({ "rule_set": "api", "user": "u", "cost": cost });
        let mut check = |cost| json(&http.post("/v1/check", &asked(cost).to_string()));
        assert_eq!(check(5)["delay_ms"], 0);
        let reserved = check(3);
        assert!(
            reserved["delay_ms"].as_u64().unwrap() > 250_000,
            "{reserved}"
        );
        let behind = check(1);
        let cancel = |cost: u64, answer: &Value| {
            let mut body = asked(cost);
            body["outcome"] = answer["outcome"].clone();
            body["reservation"] = answer["reservation"].clone();
            json(&service.http().post("/v1/give_back", &body.to_string()))
        };
        assert_eq!(cancel(3, &reserved), json!({ "given_back": 2 }));
        // Two of the three return: one was queued behind them.
        let next = check(1)["delay_ms"].as_u64().unwrap();
        let of_behind = behind["delay_ms"].as_u64().unwrap();
        assert!(
            (of_behind - 101_000..=of_behind - 99_000).contains(&next),
            "{next}"
        );
        let line = service.wait_for_log("changed");
        assert_eq!(
            (&line["what"], &line["rule_set"]),
            (&json!("give_back"), &json!("api"))
        );
        // Who cannot wait reserves nothing.
        let mut now = asked(1);
        now["wait"] = json!(false);
        let denied = json(&service.http().post("/v1/check", &now.to_string()));
        assert_eq!(
            (&denied["allowed"], &denied["violated"]),
            (&json!(false), &json!(["queue/b"]))
        );
        assert!(denied.get("reservation").is_none(), "{denied}");
    }
}

#[test]
fn what_is_wrong_with_a_call_is_named() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    for (body, status, named) in [
        (r#"{"user":"u"}"#, 400, "`rule_set`"),
        (r#"{"rule_set":"no","reservation":"r=1.0"}"#, 404, "`no`"),
        (r#"{"rule_set":"api","peek":true}"#, 400, "`peek`"),
        (r#"{"rule_set":"api","what":1}"#, 400, "`what`"),
        (r#"{"rule_set":"api","ip":"x"}"#, 400, "`ip`"),
        (r#"{"rule_set":"api","cost":-1}"#, 400, "`cost`"),
        (r#"{"rule_set":"api","outcome":"well"}"#, 400, "`outcome`"),
        (r#"{"rule_set":"api","outcome":7}"#, 400, "`outcome`"),
        (r#"{"rule_set":"api","violated":[]}"#, 400, "`violated`"),
        (r#"{"rule_set":"api"}"#, 400, "`reservation`"),
        (
            r#"{"rule_set":"api","reservation":"","reservation":""}"#,
            400,
            "`reservation`",
        ),
        ("[]", 400, "object"),
    ] {
        let answer = http.post("/v1/give_back", body);
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert!(answer.body.contains(named), "{body}: {answer:?}");
    }
}
