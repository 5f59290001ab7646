//! `POST /v1/give_back`: what a check took, as if it had never been.

use fluxgate_testkit::RedisServer;

use super::{RULES, json, remaining, store_in};
use crate::service::Service;

#[test]
fn every_rule_that_can_owe_gets_its_units_on_every_store() {
    let server = RedisServer::start();
    let redis = store_in(&server);
    for store in ["", &redis] {
        let service = Service::start(&[], &(store.to_owned() + RULES));
        let mut http = service.http();
        let asked = json!({
            "rule_set": "api", "user": "u", "ip": "10.0.0.1", "path": "/bucket", "cost": 3,
            "attributes": { "tenant": "t" },
        });
        let state = || {
            [
                remaining(&mut service.http(), "rule=per-user&identity=u"),
                remaining(&mut service.http(), "rule=pair&identity=u&identity=t"),
                remaining(&mut service.http(), "rule=all"),
                remaining(&mut service.http(), "rule=bucket&identity=10.0.0.1"),
            ]
        };
        let full = state();
        assert_eq!(
            json(&http.post("/v1/check", &asked.to_string()))["allowed"],
            true
        );
        let charged = [vec![7, 17], vec![4], vec![47], vec![2]];
        assert_eq!(state(), charged);
        let given = http.post("/v1/give_back", &asked.to_string());
        assert_eq!(json(&given), json!({ "given_back": 1 }));
        // Windows and logs may have had theirs back by themselves.
        let [user, pair, all, _] = charged;
        let [.., bucket] = full;
        assert_eq!(state(), [user, pair, all, bucket]);

        // Rules that refused took nothing, and nor did a check that failed.
        json(&http.post("/v1/check", &asked.to_string()));
        let mut answered = asked.clone();
        answered["outcome"] = json!("shadow_denied");
        answered["violated"] = json!(["all/b0", "bucket/b0"]);
        let given = http.post("/v1/give_back", &answered.to_string());
        assert_eq!(json(&given), json!({ "given_back": 0 }));
        assert_eq!(state(), [vec![4, 14], vec![1], vec![44], vec![2]]);
        answered["violated"] = json!(["all/b0", "pair/b0"]);
        let given = http.post("/v1/give_back", &answered.to_string());
        assert_eq!(json(&given), json!({ "given_back": 1 }));
        assert_eq!(state(), [vec![4, 14], vec![1], vec![44], vec![5]]);
        for outcome in ["denied", "never", "no_rule", "failed_open", "failed_closed"] {
            answered["outcome"] = json!(outcome);
            let given = http.post("/v1/give_back", &answered.to_string());
            assert_eq!(json(&given), json!({ "given_back": 0 }), "{outcome}");
        }
        let line = service.wait_for_log("changed");
        assert_eq!(
            (&line["what"], &line["rule_set"]),
            (&json!("give_back"), &json!("api"))
        );
    }
}

#[test]
fn what_is_wrong_with_a_call_is_named() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    for (body, status, named) in [
        (r#"{"user":"u"}"#, 400, "`rule_set`"),
        (r#"{"rule_set":"no"}"#, 404, "`no`"),
        (r#"{"rule_set":"api","peek":true}"#, 400, "`peek`"),
        (r#"{"rule_set":"api","what":1}"#, 400, "`what`"),
        (r#"{"rule_set":"api","ip":"x"}"#, 400, "`ip`"),
        (r#"{"rule_set":"api","cost":-1}"#, 400, "`cost`"),
        (r#"{"rule_set":"api","outcome":"well"}"#, 400, "`outcome`"),
        (r#"{"rule_set":"api","outcome":7}"#, 400, "`outcome`"),
        (r#"{"rule_set":"api","violated":"a/b"}"#, 400, "`violated`"),
        (
            r#"{"rule_set":"api","violated":[],"violated":[]}"#,
            400,
            "`violated`",
        ),
        ("[]", 400, "object"),
    ] {
        let answer = http.post("/v1/give_back", body);
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert!(answer.body.contains(named), "{body}: {answer:?}");
    }
}
