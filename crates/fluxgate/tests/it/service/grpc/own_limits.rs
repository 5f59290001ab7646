//! Descriptors with a limit of their own.

use fluxgate_testkit::RedisServer;
use serde_json::{Value, json};

use super::Client;
use super::client::{Response, descriptor};
use crate::service::Service;

const RULES: &str = r#"
rule_sets:
  api:
    rules:
      - { id: no, action: deny, match: { attributes: { user: eve } } }
      - { id: per-user, key: ["attr:user"], bands: [ { id: b, capacity: 1, window: 1h } ] }
"#;

/// A descriptor with so many requests per unit.
fn limited(entries: &[(&str, &str)], requests: u64, unit: &str) -> Value {
    let mut limited = descriptor(entries);
    limited["limit"] = json!({ "requests_per_unit": requests, "unit": unit });
    limited
}

fn call(descriptors: &[Value]) -> Value {
    json!({ "domain": "api", "descriptors": descriptors })
}

fn codes(response: &Response) -> String {
    format!("{} {}", response.code(), response.codes().join(" "))
}

#[test]
fn a_descriptor_with_a_limit_is_decided_by_that_alone() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let ann = call(&[limited(&[("user", "ann")], 2, "HOUR")]);
    let first = client.should_rate_limit(&ann);
    assert_eq!(codes(&first), "OK OK");
    let status = &first.statuses()[0];
    assert_eq!(
        status["current_limit"],
        json!({ "requests_per_unit": 2, "unit": "HOUR", "name": "" })
    );
    assert_eq!(status["limit_remaining"], 1);
    assert_eq!(first.header("x-ratelimit-limit"), Some("2"));
    let policy = first.header("ratelimit-policy");
    assert_eq!(policy, Some(r#""descriptor/hour";q=2;w=3600"#));
    let rest = first.header("ratelimit").unwrap();
    assert!(rest.starts_with(r#""descriptor/hour";r=1;t="#), "{rest}");
    assert_eq!(codes(&client.should_rate_limit(&ann)), "OK OK");
    let denied = client.should_rate_limit(&ann);
    assert_eq!(codes(&denied), "OVER_LIMIT OVER_LIMIT");
    let retry: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!(retry <= 3600, "{retry}");
    // The rule, other entries, and the same in another order or domain count for themselves.
    assert_eq!(client.check("api", "user", "ann").code(), "OK");
    for entries in [
        &[("user", "bob")][..],
        &[("user", "ann"), ("plan", "free")],
        &[("plan", "free"), ("user", "ann")],
        &[("user", "an"), ("n", "")],
    ] {
        let other = call(&[limited(entries, 1, "HOUR")]);
        assert_eq!(client.should_rate_limit(&other).code(), "OK", "{entries:?}");
    }
    let mut other = ann.clone();
    other["domain"] = json!("other");
    assert_eq!(client.should_rate_limit(&other).code(), "OK");
    // Denied by the rule, not by the limit.
    assert_eq!(client.check("api", "user", "ann").code(), "OVER_LIMIT");
    let denials = service.http().get("/metrics").body;
    assert!(
        denials.contains("fluxgate_decisions_total{rule_set=\"\""),
        "{denials}"
    );
}

#[test]
fn rules_and_limits_of_one_call_are_charged_together() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let both = |user: &str, requests: u64| {
        call(&[
            descriptor(&[("user", user)]),
            limited(&[("tenant", "t")], requests, "DAY"),
        ])
    };
    let refused = client.should_rate_limit(&both("ann", 0));
    assert_eq!(codes(&refused), "OVER_LIMIT OK OVER_LIMIT");
    assert_eq!(refused.remaining(), [1, 0]);
    let allowed = client.should_rate_limit(&both("ann", 2));
    assert_eq!(codes(&allowed), "OK OK OK");
    assert_eq!(allowed.remaining(), [0, 1]);
    let policy = allowed.header("ratelimit-policy").unwrap();
    assert_eq!(
        policy,
        r#""per-user/b";q=1;w=3600,"descriptor/day";q=2;w=86400"#
    );
    // The rule denies, so the limit is not charged.
    for _ in 0..3 {
        let refused = client.should_rate_limit(&both("ann", 2));
        assert_eq!(codes(&refused), "OVER_LIMIT OVER_LIMIT OK");
    }
    let forbidden = client.should_rate_limit(&both("eve", 2));
    assert_eq!(codes(&forbidden), "OVER_LIMIT OVER_LIMIT OK");
    assert_eq!(forbidden.header("x-fluxgate-outcome"), Some("forbidden"));
    assert_eq!(forbidden.header("ratelimit-policy"), None);
    assert_eq!(
        codes(&client.should_rate_limit(&both("bob", 2))),
        "OK OK OK"
    );
    assert_eq!(
        codes(&client.should_rate_limit(&both("eve2", 2))),
        "OVER_LIMIT OK OVER_LIMIT"
    );
}

#[test]
fn costs_and_units_are_those_of_the_call() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    for (unit, name) in [
        ("SECOND", "second"),
        ("MINUTE", "minute"),
        ("DAY", "day"),
        ("MONTH", "month"),
        ("YEAR", "year"),
    ] {
        let mut request = call(&[limited(&[("unit", unit)], 10, unit)]);
        request["hits_addend"] = json!(4);
        let response = client.should_rate_limit(&request);
        assert_eq!(response.remaining(), [6], "{unit}");
        assert_eq!(response.statuses()[0]["current_limit"]["unit"], unit);
        let policy = response.header("ratelimit-policy").unwrap();
        assert!(policy.contains(name), "{policy}");
    }
    let mut own_cost = limited(&[("unit", "DAY")], 10, "DAY");
    own_cost["hits_addend"] = json!(0);
    let look = client.should_rate_limit(&call(&[own_cost]));
    assert_eq!((look.code(), look.remaining()), ("OK", vec![6]));
    let (code, message) = client.check_error(&call(&[limited(&[("a", "b")], 1, "UNKNOWN")]));
    assert_eq!(code, "INVALID_ARGUMENT");
    assert!(message.contains("`descriptors[0].limit.unit`"), "{message}");
}

#[test]
fn instances_share_the_limits_of_descriptors() {
    let store = RedisServer::start();
    let config = format!(
        "store: {{ redis: {{ url: 'redis://{}', deadline: 10s }} }}\n{RULES}",
        store.addr()
    );
    let services = [0, 1].map(|_| Service::start(&["grpc"], &config));
    let request = call(&[
        limited(&[("tenant", "t")], 3, "DAY"),
        descriptor(&[("user", "ann")]),
    ]);
    let alone = call(&[limited(&[("tenant", "t")], 3, "DAY")]);
    let mut clients = services.each_ref().map(Client::of);
    assert_eq!(clients[0].should_rate_limit(&request).code(), "OK");
    assert_eq!(clients[1].should_rate_limit(&request).code(), "OVER_LIMIT");
    assert_eq!(clients[1].should_rate_limit(&alone).remaining(), [1]);
    assert_eq!(clients[0].should_rate_limit(&alone).remaining(), [0]);
    assert_eq!(clients[1].should_rate_limit(&alone).code(), "OVER_LIMIT");
    // A limit of 0 denies the rest of the call too.
    let nothing = call(&[
        limited(&[("tenant", "t")], 0, "DAY"),
        descriptor(&[("user", "bob")]),
    ]);
    let refused = clients[0].should_rate_limit(&nothing);
    assert_eq!(codes(&refused), "OVER_LIMIT OVER_LIMIT OK");
    assert_eq!(clients[0].check("api", "user", "bob").code(), "OK");
    store.kill();
    // The set has `on_error: local`.
    let fallback = clients[0].should_rate_limit(&alone);
    assert_eq!((fallback.code(), fallback.remaining()), ("OK", vec![2]));
}

#[test]
fn envoy_gets_the_decision_as_metadata() {
    let service = Service::start(&["grpc"], RULES);
    let mut client = Client::of(&service);
    let own = client.should_rate_limit(&call(&[limited(&[("a", "b")], 5, "DAY")]));
    let metadata = &own.0["dynamic_metadata"];
    assert_eq!(metadata["rule"], "descriptor/day");
    assert_eq!(metadata["remaining"], 4.0);
}
