//! `POST /v1/give_back`, which cancels a reservation.

use fluxgate_testkit::RedisServer;
use serde_json::Value;

use super::{RULES, assert_refused, json, store_in};
use crate::service::Service;

const WAITS: &str = "
rule_sets:
  api:
    rules:
      - { id: queue, scope: per_user, on_exceed: wait, max_wait: 1h, bands: [ { id: b, capacity: 5, window: 500s } ] }
      - { id: day, scope: per_user, algorithm: fixed_window, bands: [ { capacity: 1000, window: 300d } ] }
";

#[test]
fn units_return_unless_a_later_request_was_queued_behind_them() {
    let server = RedisServer::start();
    let redis = store_in(&server);
    for store in ["", &redis] {
        let service = Service::start(&[], &(store.to_owned() + WAITS));
        let mut http = service.http();
        let request = |cost: u64| json!({ "rule_set": "api", "user": "u", "cost": cost });
        let mut check = |cost| json(&http.post("/v1/check", &request(cost).to_string()));
        assert_eq!(check(5)["delay_ms"], 0);
        let reserved = check(3);
        assert!(
            reserved["delay_ms"].as_u64().unwrap() > 250_000,
            "{reserved}"
        );
        let behind = check(1);
        let cancel = |cost: u64, answer: &Value| {
            let mut body = request(cost);
            body["outcome"] = answer["outcome"].clone();
            body["reservation"] = answer["reservation"].clone();
            json(&service.http().post("/v1/give_back", &body.to_string()))
        };
        assert_eq!(cancel(3, &reserved), json!({ "given_back": 2 }));
        // Two of the three return: one was queued behind them.
        let next = check(1)["delay_ms"].as_u64().unwrap();
        let of_behind = behind["delay_ms"].as_u64().unwrap();
        assert!(
            (of_behind - 130_000..=of_behind - 99_000).contains(&next),
            "{next}"
        );
        let line = service.wait_for_log("changed");
        assert_eq!(
            (&line["what"], &line["rule_set"]),
            (&json!("give_back"), &json!("api"))
        );
        // A request that may not wait reserves nothing.
        let mut no_wait = request(1);
        no_wait["wait"] = json!(false);
        let denied = json(&service.http().post("/v1/check", &no_wait.to_string()));
        assert_eq!(
            (&denied["allowed"], &denied["violated"]),
            (&json!(false), &json!(["queue/b"]))
        );
        assert!(denied.get("reservation").is_none(), "{denied}");
    }
}

/// Calls and what is wrong with them, as in [`assert_refused`].
const INVALID: &str = r#"
give_back {"user":"u"} -> 400 `rule_set`
give_back {"rule_set":"no","reservation":"r=1.0"} -> 404 `no`
give_back {"rule_set":"api","peek":true} -> 400 `peek`
give_back {"rule_set":"api","what":1} -> 400 `what`
give_back {"rule_set":"api","ip":"x"} -> 400 `ip`
give_back {"rule_set":"api","cost":-1} -> 400 `cost`
give_back {"rule_set":"api","outcome":"well"} -> 400 `outcome`
give_back {"rule_set":"api","outcome":7} -> 400 `outcome`
give_back {"rule_set":"api","violated":[]} -> 400 `violated`
give_back {"rule_set":"api"} -> 400 `reservation`
give_back {"rule_set":"api","reservation":"","reservation":""} -> 400 `reservation`
give_back [] -> 400 object
"#;

#[test]
fn invalid_calls_are_refused() {
    let service = Service::start(&[], RULES);
    assert_refused(&mut service.http(), INVALID);
}
