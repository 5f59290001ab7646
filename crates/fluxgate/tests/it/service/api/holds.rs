//! Holds over HTTP: slots and charges that are settled later.

use serde_json::{Value, json};

use super::{Service, json_of};
use crate::service::telemetry::Metrics;

const RULES: &str = r#"
rule_sets:
  slots:
    rules:
      - { id: exports, scope: per_user, algorithm: concurrency, hold: 30s, bands: [ { capacity: 2 } ] }
  budget:
    rules:
      - { id: requests, scope: per_user, bands: [ { capacity: 100, window: 1h } ], algorithm: fixed_window, cost: 1 }
      - { id: tokens, scope: per_user, bands: [ { capacity: 1000, window: 1h } ], algorithm: fixed_window, cost: "attr:tokens" }
"#;

/// Posts and returns the status and the JSON of the response.
fn post(service: &Service, path: &str, body: &Value) -> (u16, Value) {
    let answer = service.http().post(path, &body.to_string());
    (answer.status, json_of(&answer))
}

fn check(service: &Service, body: &Value) -> Value {
    let (status, decision) = post(service, "/v1/check", body);
    assert_eq!(status, 200, "{decision}");
    decision
}

fn id_of(decision: &Value) -> String {
    let id = decision["hold"].as_str().expect("a hold").to_owned();
    let is_base32 = |byte: u8| byte.is_ascii_uppercase() || (b'2'..=b'7').contains(&byte);
    assert!(id.len() == 26 && id.bytes().all(is_base32), "{id}");
    id
}

#[test]
fn slots_are_taken_and_given_back() {
    let service = Service::start(&[], RULES);
    let ann = json!({"rule_set": "slots", "user": "ann"});
    let first = check(&service, &ann);
    assert_eq!(
        (&first["limit"], &first["remaining"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(first["hold_ms"], 30_000);
    let second = id_of(&check(&service, &ann));
    let denied = check(&service, &ann);
    assert_eq!(denied["allowed"], false);
    assert_eq!(denied.get("hold"), None, "a denied request holds nothing");
    let retry = denied["retry_after_ms"].as_u64().unwrap();
    assert!((20_000..=30_000).contains(&retry), "{denied}");
    assert_eq!(
        check(&service, &json!({"rule_set": "slots", "user": "bob"}))["allowed"],
        true
    );

    let (status, settled) = post(&service, "/v1/release", &json!({"hold": second}));
    assert_eq!(
        (status, settled),
        (200, json!({"settled": true, "charged": 0, "uncharged": 0}))
    );
    for path in ["/v1/release", "/v1/settle"] {
        assert_eq!(
            post(&service, path, &json!({"hold": second})).0,
            404,
            "{path}"
        );
    }
    let renewal = json!({"hold": second, "hold_for": "60s"});
    assert_eq!(
        post(&service, "/v1/renew", &renewal).0,
        404,
        "never revived"
    );
    assert_eq!(check(&service, &ann)["allowed"], true);

    let renewal = json!({"hold": id_of(&first), "hold_for": "60s"});
    assert_eq!(
        post(&service, "/v1/renew", &renewal),
        (200, json!({"renewed": true}))
    );
    let renewal = json!({"holds": [id_of(&first), second, "x"], "hold_for": "60s"});
    let renewed = json!({"renewed": [true, false, false]});
    assert_eq!(post(&service, "/v1/renew", &renewal), (200, renewed));

    let metrics = Metrics::of(&service);
    assert_eq!(metrics.get("fluxgate_holds"), 3);
    let held = "fluxgate_slots_held{rule_set=\"slots\",rule=\"exports\"}";
    assert_eq!(metrics.get(held), 3);
    assert_eq!(metrics.get("fluxgate_late_settles_total"), 2);
    assert_eq!(metrics.get("fluxgate_holds_expired_total"), 0);
}

#[test]
fn slots_are_announced_with_their_unit() {
    let service = Service::start(&[], RULES);
    let answer = service
        .http()
        .post("/v1/check", r#"{"rule_set":"slots","user":"ann"}"#);
    let policy = "\"exports/b0\";q=2;qu=\"concurrent-requests\"";
    assert_eq!(answer.header("ratelimit-policy"), Some(policy));
}

#[test]
fn charges_are_settled_by_cost_and_by_attributes() {
    let service = Service::start(&[], RULES);
    let reserve = |hold: Option<&str>| {
        check(
            &service,
            &json!({"rule_set": "budget", "user": "ann", "attributes": {"tokens": "400"}, "hold": hold}),
        )
    };
    let left = || {
        ["requests", "tokens"].map(|rule| {
            let path = format!("/v1/state?rule_set=budget&rule={rule}&identity=ann");
            let state = json_of(&service.http().get(&path));
            let remaining = state["bands"][0]["remaining"].as_u64();
            remaining.unwrap_or_else(|| panic!("{state}"))
        })
    };
    assert_eq!(reserve(None).get("hold"), None, "no hold was asked for");
    assert_eq!(left(), [99, 600]);
    let id = id_of(&reserve(Some("60s")));
    assert_eq!(left(), [98, 200]);
    let settled = post(
        &service,
        "/v1/settle",
        &json!({"hold": id, "attributes": {"tokens": "150"}}),
    );
    assert_eq!(
        settled,
        (
            200,
            json!({"settled": true, "charged": 150, "uncharged": 0})
        )
    );
    assert_eq!(left(), [98, 450]);
    let id = id_of(&reserve(Some("60s")));
    let settled = post(&service, "/v1/settle", &json!({"hold": id, "cost": 10}));
    assert_eq!(
        settled,
        (200, json!({"settled": true, "charged": 10, "uncharged": 0}))
    );
    assert_eq!(left(), [88, 440], "one cost for every rule");
    let id = id_of(&reserve(Some("24h")));
    let settled = post(&service, "/v1/settle", &json!({"hold": id}));
    assert_eq!(
        settled,
        (
            200,
            json!({"settled": true, "charged": 400, "uncharged": 0})
        )
    );
    assert_eq!(left(), [87, 40]);
    // The shortest hold, which may have ended before it could be settled.
    let shortest =
        json!({"rule_set": "budget", "user": "bob", "attributes": {"tokens": "400"}, "hold": "1s"});
    id_of(&check(&service, &shortest));
}

#[test]
fn bad_calls_name_the_field_and_change_nothing() {
    let service = Service::start(&[], RULES);
    for hold in ["999ms", "25h", "60", "", "-1s"] {
        let body = json!({"rule_set": "budget", "user": "ann", "hold": hold});
        let (status, problem) = post(&service, "/v1/check", &body);
        assert_eq!(status, 400, "{hold}: {problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains("`hold`"),
            "{problem}"
        );
    }
    let id = id_of(&check(
        &service,
        &json!({"rule_set": "slots", "user": "ann"}),
    ));
    for (path, body, status, detail) in [
        ("/v1/settle", json!({}), 400, "hold"),
        ("/v1/settle", json!({"hold": id, "cost": -1}), 400, "`cost`"),
        (
            "/v1/settle",
            json!({"hold": id, "cost": 1.5}),
            400,
            "`cost`",
        ),
        (
            "/v1/settle",
            json!({"hold": id, "attributes": {"tokens": "abc"}}),
            400,
            "attribute `tokens` must be a whole number from 0, not \"abc\"",
        ),
        (
            "/v1/settle",
            json!({"hold": id, "cost": 1, "attributes": {"tokens": 1}}),
            400,
            "found both",
        ),
        ("/v1/settle", json!({"hold": id, "more": 1}), 400, "more"),
        (
            "/v1/settle",
            json!({"hold": "AAAAAAAAAAAAAAAAAAAAAAAAAA"}),
            404,
            "no such hold",
        ),
        (
            "/v1/settle",
            json!({"hold": "nonsense"}),
            404,
            "no such hold",
        ),
        ("/v1/renew", json!({"hold": id}), 400, "hold_for"),
        (
            "/v1/renew",
            json!({"hold_for": "1h"}),
            400,
            "`hold` or `holds` is missing",
        ),
        (
            "/v1/renew",
            json!({"hold": id, "hold_for": 60}),
            400,
            "expected a duration from 1s to 24h, such as \"60s\"",
        ),
        (
            "/v1/check",
            json!({"rule_set": "budget", "hold": 60}),
            400,
            "expected a duration from 1s to 24h, such as \"60s\"",
        ),
        (
            "/v1/renew",
            json!({"hold": id, "hold_for": "25h"}),
            400,
            "`hold_for`",
        ),
        (
            "/v1/renew",
            json!({"hold": id, "holds": [id], "hold_for": "1h"}),
            400,
            "found both",
        ),
        ("/v1/release", json!({}), 400, "hold"),
    ] {
        let (got, problem) = post(&service, path, &body);
        assert_eq!(got, status, "{path} {body}: {problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains(detail),
            "{body}: {problem}"
        );
    }
    assert_eq!(post(&service, "/v1/release", &json!({"hold": id})).0, 200);
}

#[test]
fn a_rule_that_is_consumed_by_name_returns_its_hold() {
    let service = Service::start(&[], RULES);
    let call = json!({"rule_id": "slots/exports", "identity": ["ann"], "cost": 2});
    let (_, consumed) = post(&service, "/v1/consume", &call);
    assert_eq!(
        (&consumed["allowed"], &consumed["remaining"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(
        post(&service, "/v1/release", &json!({"hold": id_of(&consumed)})).0,
        200
    );
    assert_eq!(post(&service, "/v1/consume", &call).1["allowed"], true);
}
