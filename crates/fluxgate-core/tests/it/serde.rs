//! Decisions and rules through serde.

use std::time::Duration;

use fluxgate_core::json::JsonWriter;
use fluxgate_core::{
    KeyedLimiter, Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet, RuleSets,
};
use serde_json::{Value, json};

#[test]
fn decisions_have_the_fields_of_the_api() {
    let rule = Rule::new("r").per_user().band(Quota::per_hour(1));
    let set = RuleSet::builder("s").rule(rule).build().unwrap();
    let limiter = Limiter::new(set, MemoryStore::default());
    let request = |cost| RequestContext::builder().user("ann").cost(cost).build();
    let decide = |cost| serde_json::to_value(limiter.check_sync("s", &request(cost))).unwrap();
    let never = json!({
        "allowed": false, "outcome": "never", "rule": "r", "band": "b0", "limit": 1,
        "remaining": 1, "retry_after_ms": null, "reset_after_ms": 0, "delay_ms": 0,
        "violated": ["r/b0"],
    });
    assert_eq!(decide(2), never);
    let mut allowed = decide(1);
    // An hour, less what has passed.
    assert!(allowed["reset_after_ms"].take().as_u64().unwrap() > 3_590_000);
    let expected = json!({
        "allowed": true, "outcome": "allowed", "rule": "r", "band": "b0", "limit": 1,
        "remaining": 0, "retry_after_ms": 0, "reset_after_ms": null, "delay_ms": 0,
        "violated": [],
    });
    assert_eq!(allowed, expected);
}

#[test]
fn a_decision_is_the_same_json_by_serde_and_by_the_writer() {
    let held = Rule::new("held").per_user().band(Quota::per_hour(3));
    let waiting = Rule::new("waiting")
        .global()
        .band(Quota::per_second(1))
        .wait_up_to(Duration::from_secs(9));
    let set = RuleSet::builder("s").rule(held).rule(waiting).build();
    let limiter = Limiter::new(set.unwrap(), MemoryStore::default());
    let request = RequestContext::builder().user("ann");
    let request = request.hold(Duration::from_secs(60)).build();
    let mut outcomes = Vec::new();
    for _ in 0..5 {
        let decision = limiter.check_sync("s", &request);
        let mut json = b"{".to_vec();
        JsonWriter(&mut json).check_fields(&decision);
        json.push(b'}');
        let written: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(serde_json::to_value(&decision).unwrap(), written);
        assert_eq!(written["hold"].is_string(), decision.allowed());
        outcomes.push(decision.outcome().name());
    }
    assert!(
        outcomes.contains(&"allowed") && outcomes.contains(&"denied"),
        "{outcomes:?}"
    );
}

#[test]
fn permits_and_denials_are_objects() {
    let limiter = KeyedLimiter::new(Quota::per_hour(2));
    let permit = serde_json::to_value(limiter.check("a").unwrap()).unwrap();
    assert_eq!(permit["remaining"], 1);
    let reset = permit["reset_after_ms"].as_u64().unwrap();
    assert!((1_799_000..=1_800_000).contains(&reset), "{reset}");
    let denied = serde_json::to_value(limiter.check_n("a", 3).unwrap_err()).unwrap();
    let expected = json!({ "retry_after_ms": null, "remaining": 1, "failed_closed": false });
    assert_eq!(denied, expected);
}

#[test]
fn rules_survive_the_way_through_json() {
    let yaml = include_str!("../../../../spec/rules/every_field.yaml");
    let rules = RuleSets::from_yaml(yaml).unwrap();
    let json: Value = serde_json::to_value(&rules).unwrap();
    assert_eq!(json["rule_sets"]["api"]["rules"][1]["cost"], 2);
    let back: RuleSets = serde_json::from_value(json).unwrap();
    assert_eq!(back, rules);
}

#[test]
fn faults_in_json_are_all_reported() {
    let json = json!({ "rule_sets": { "s": { "rules": [
        { "id": "Bad", "scope": "per_user", "bands": [{ "capacity": 0, "window": "1s" }] },
    ] } } });
    let error = serde_json::from_value::<RuleSets>(json)
        .unwrap_err()
        .to_string();
    assert!(error.contains("`Bad` is not a rule id"), "{error}");
    assert!(
        error.contains("`capacity` must be a whole number"),
        "{error}"
    );
}
