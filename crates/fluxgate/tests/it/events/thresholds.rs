//! Shares of limits that identities have reached.

use std::time::Duration;

use fluxgate_testkit::{RedisServer, Stopwatch, wait_until};
use serde_json::json;

use super::{EventStream, NOTIFIES, events, spend, start, thresholds, wait_for_thresholds};
use crate::service::Service;

/// Runs a test without and with Redis.
pub(super) fn on_each_store(config: &str, test: impl Fn(&Service)) {
    test(&Service::start(&[], config));
    let server = RedisServer::start();
    test(&start(&server, config));
}

/// Waits until the events of all requests so far must have been logged: that of another user,
/// whose request came later, has been.
pub(super) fn settle(service: &Service, marker: &str) {
    spend(service, marker, 8);
    let name = format!("user={marker}");
    wait_until("the marker", || {
        let all = thresholds(&events(service));
        all.iter().any(|(identity, _)| *identity == name)
    });
}

/// Returns the shares of a user's thresholds.
pub(super) fn shares_of(service: &Service, user: &str) -> Vec<u64> {
    let name = format!("user={user}");
    let all = thresholds(&events(service));
    let own = all.into_iter().filter(|(identity, _)| *identity == name);
    own.map(|(_, share)| share).collect()
}

#[test]
fn a_threshold_is_an_event_with_a_sentence() {
    on_each_store(NOTIFIES, |service| {
        let mut stream = EventStream::open(service, None);
        for _ in 0..8 {
            spend(service, "ann", 1);
        }
        let event = stream.next().unwrap();
        assert_eq!(stream.last_id.as_deref(), event["id"].as_str());
        assert_eq!(event["kind"], "threshold");
        let fields = ["rule_set", "rule", "band", "identity", "share", "limit"];
        let fields = fields.map(|field| event[field].clone());
        assert_eq!(
            json!(fields),
            json!(["api", "per-user", "hour", "user=ann", 80, 10])
        );
        let text = event["text"].as_str().unwrap();
        let expected = "user=ann has used 80% of the limit of 10 of rule api/per-user (band hour), \
                        which resets in 48 minutes";
        assert_eq!(text, expected);
        let reset = event["reset_after_ms"].as_u64().unwrap();
        assert!((2_800_000..=2_880_000).contains(&reset), "{reset}");
        let now = crate::support::unix_time();
        let at = Duration::from_millis(event["at_ms"].as_u64().unwrap());
        assert!(now.abs_diff(at) < Duration::from_secs(60), "{at:?}");
        assert_eq!(events(service), [event]);
    });
}

#[test]
fn each_share_is_told_once_until_the_use_has_fallen() {
    on_each_store(NOTIFIES, |service| {
        for _ in 0..20 {
            spend(service, "ann", 1);
        }
        spend(service, "bob", 10);
        settle(service, "eve");
        assert_eq!(shares_of(service, "ann"), [80, 100]);
        assert_eq!(shares_of(service, "bob"), [80, 100], "two by one request");
    });
}

#[test]
fn a_refund_below_a_share_lets_it_be_told_again() {
    on_each_store(NOTIFIES, |service| {
        let refund = |user: &str, units: u64| {
            let body =
                json!({ "rule_set": "api", "rule": "per-user", "identity": user, "units": units });
            let answer = service.http().post("/v1/refund", &body.to_string());
            assert_eq!(answer.status, 200, "{answer:?}");
        };
        spend(service, "ann", 10);
        wait_for_thresholds(service, 2);
        // Still above 80%.
        refund("ann", 1);
        spend(service, "ann", 1);
        settle(service, "eve");
        assert_eq!(shares_of(service, "ann"), [80, 100, 100]);
        refund("ann", 9);
        spend(service, "ann", 7);
        settle(service, "mallory");
        assert_eq!(shares_of(service, "ann"), [80, 100, 100, 80]);
    });
}

#[test]
fn a_reset_lets_all_shares_be_told_again() {
    on_each_store(NOTIFIES, |service| {
        let reset = |identity: Option<&str>| {
            let mut body = json!({ "rule_set": "api", "rule": "per-user" });
            if let Some(identity) = identity {
                body["identity"] = identity.into();
            }
            let answer = service.http().post("/v1/reset", &body.to_string());
            assert_eq!(answer.status, 200, "{answer:?}");
        };
        spend(service, "ann", 10);
        wait_for_thresholds(service, 2);
        reset(Some("ann"));
        spend(service, "ann", 9);
        wait_for_thresholds(service, 3);
        reset(None);
        spend(service, "ann", 10);
        settle(service, "eve");
        assert_eq!(shares_of(service, "ann"), [80, 100, 80, 80, 100]);
        let set = json!({ "rule_set": "api" }).to_string();
        assert_eq!(service.http().post("/v1/reset", &set).status, 200);
        spend(service, "ann", 8);
        settle(service, "mallory");
        assert_eq!(shares_of(service, "ann"), [80, 100, 80, 80, 100, 80]);
    });
}

#[test]
fn a_share_is_told_again_after_units_have_refilled() {
    let config = NOTIFIES.replace("capacity: 10, window: 1h", "capacity: 60, window: 1m");
    on_each_store(&config, |service| {
        spend(service, "ann", 48);
        wait_for_thresholds(service, 1);
        // Two seconds refill two units.
        wait_until("two units to refill", || {
            let state = "/v1/state?rule_set=api&rule=per-user&identity=ann";
            let state = service.http().get(state);
            let state: serde_json::Value = serde_json::from_str(&state.body).unwrap();
            state["bands"][0]["remaining"].as_u64().unwrap() >= 14
        });
        spend(service, "ann", 3);
        assert_eq!(wait_for_thresholds(service, 2).len(), 2);
    });
}

#[test]
fn a_bucket_that_is_hammered_is_told_once() {
    // 100 units a second refill, each of which is taken at once.
    let config = NOTIFIES.replace("capacity: 10, window: 1h", "capacity: 6000, window: 1m");
    on_each_store(&config, |service| {
        spend(service, "ann", 6_000);
        let (mut http, start) = (service.http(), Stopwatch::start());
        let body = json!({ "rule_set": "api", "user": "ann" }).to_string();
        let mut allowed = 0;
        while start.elapsed() < Duration::from_secs(3) {
            let answer = http.post("/v1/check", &body);
            allowed += usize::from(answer.body.contains("\"allowed\":true"));
        }
        assert!(allowed > 50, "{allowed}");
        spend(service, "eve", 5_000);
        wait_until("the marker", || {
            let all = thresholds(&events(service));
            all.iter().any(|(identity, _)| identity == "user=eve")
        });
        assert_eq!(shares_of(service, "ann"), [80, 100]);
    });
}

#[test]
fn shadow_rules_tell_nothing_and_overrides_have_their_own_share() {
    let config = "
telemetry: { identities: true }
rule_sets:
  api:
    rules:
      - id: shadow
        mode: shadow
        scope: per_user
        bands: [ 10/h ]
        notify: [10%]
      - { id: nobody-yet, rollout: 0%, scope: per_user, bands: [ 10/h ], notify: [10%] }
      - id: per-user
        scope: per_user
        bands: [ { id: hour, capacity: 10, window: 1h } ]
        overrides: [ { identity: ann, bands: [ { id: hour, capacity: 20, window: 1h } ] } ]
        notify: [80%]
";
    on_each_store(config, |service| {
        spend(service, "ann", 15);
        spend(service, "bob", 7);
        spend(service, "ann", 1);
        spend(service, "bob", 1);
        wait_for_thresholds(service, 2);
        settle(service, "eve");
        let all = events(service);
        let of = |user: &str| {
            let name = format!("user={user}");
            let own = all.iter().filter(|event| event["identity"] == *name);
            own.map(|it| (it["rule"].clone(), it["limit"].clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("ann"), [(json!("per-user"), json!(20))]);
        assert_eq!(of("bob"), [(json!("per-user"), json!(10))]);
    });
}

#[test]
fn a_leased_band_tells_a_share_once() {
    let config = NOTIFIES
        .replace("capacity: 10, window: 1h", "capacity: 2000, window: 1h")
        .replace("notify:", "lease: { share: 20%, for: 1s }, notify:");
    // In memory nothing is leased.
    on_each_store(&config, |service| {
        let mut http = service.http();
        let body = json!({ "rule_set": "api", "user": "ann" }).to_string();
        for _ in 0..3_000 {
            assert_eq!(http.post("/v1/check", &body).status, 200);
        }
        spend(service, "eve", 1_600);
        wait_until("the marker", || {
            let all = thresholds(&events(service));
            all.iter().any(|(identity, _)| identity == "user=eve")
        });
        assert_eq!(shares_of(service, "ann"), [80, 100]);
    });
}

#[test]
fn while_the_store_is_down_no_share_is_told() {
    let server = RedisServer::start();
    let service = start(&server, NOTIFIES);
    spend(&service, "ann", 1);
    server.kill();
    wait_until("the fallback decides", || {
        spend(&service, "ann", 1)["outcome"] == "fallback"
    });
    spend(&service, "ann", 8);
    assert_eq!(thresholds(&events(&service)), []);
    server.restart();
    wait_until("the store decides", || {
        spend(&service, "bob", 1)["outcome"] == "allowed"
    });
    spend(&service, "ann", 9);
    let told = wait_for_thresholds(&service, 1);
    assert_eq!(told[0].0, "user=ann");
}
