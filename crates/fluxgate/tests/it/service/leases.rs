//! Leases of instances on one Redis: what the service shows of them, and that they are
//! returned at its end.

use std::time::Duration;

use fluxgate_testkit::{Http, RedisServer, timed, wait_until};
use serde_json::{Value, json};

use super::Service;
use super::telemetry::Metrics;
use crate::support::Dir;

/// Leases that outlast a test.
const RULES: &str = "
rule_sets:
  api:
    on_error: deny
    rules:
      - id: leased
        match: { path: [/leased] }
        scope: per_user
        algorithm: fixed_window
        lease: { share: 50%, for: 1m }
        bands: [ { capacity: 1000, window: 30d } ]
      - id: exact
        match: { path: [/exact] }
        scope: per_user
        algorithm: fixed_window
        bands: [ { capacity: 1000, window: 30d } ]
";

const ALLOWED: &str = "fluxgate_lease_decisions_total{outcome=\"allowed\"}";
const DENIED: &str = "fluxgate_lease_decisions_total{outcome=\"denied\"}";
const ASKS: &str = "fluxgate_lease_asks_total";
const UNITS: &str = "fluxgate_lease_units";
const GRANTED: &str = "fluxgate_lease_units_total{event=\"granted\"}";
const RETURNED: &str = "fluxgate_lease_units_total{event=\"returned\"}";
const EXPIRED: &str = "fluxgate_lease_units_total{event=\"expired\"}";

fn start(server: &RedisServer) -> Service {
    let url = server.url();
    let store = format!("store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\n");
    let service = Service::start(&[], &(store + RULES));
    wait_until("the store answers", || {
        let other = r#"{"user":"warm","path":"/exact"}"#;
        json_of(&mut service.http(), "/v1/check", other)["outcome"] == "allowed"
    });
    service
}

#[track_caller]
fn json_of(http: &mut Http, path: &str, body: &str) -> Value {
    let answer = match body {
        "" => http.get(path),
        body => http.post(path, body),
    };
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

/// Waits until there are units on lease: the last grant may be on its way.
#[track_caller]
fn wait_for_units(service: &Service) {
    wait_until("units are on lease", || Metrics::of(service).get(UNITS) > 0);
}

/// Sends requests of one user. Returns how many were admitted.
fn take(http: &mut Http, times: usize) -> usize {
    let request = r#"{"user":"ann","path":"/leased"}"#;
    let is_allowed = |_: &usize| json_of(http, "/v1/check", request)["allowed"] == true;
    (0..times).filter(is_allowed).count()
}

/// Returns the only band of a rule, for the user.
fn state(http: &mut Http, rule: &str) -> Value {
    let path = format!("/v1/state?rule_set=api&rule={rule}&identity=ann");
    json_of(http, &path, "")["bands"][0].clone()
}

#[test]
fn the_list_of_rules_shows_leases() {
    let server = RedisServer::start();
    let service = start(&server);
    let list = json_of(&mut service.http(), "/v1/rule_sets", "");
    let rules = &list["rule_sets"][0]["rules"];
    assert_eq!(
        rules[0]["lease"],
        json!({ "share": "50%", "for_ms": 60_000 })
    );
    assert_eq!(rules[1]["lease"], Value::Null);
}

#[test]
fn metrics_count_what_leases_decide() {
    let server = RedisServer::start();
    let service = start(&server);
    let mut http = service.http();
    assert_eq!(take(&mut http, 500), 500);
    let metrics = Metrics::of(&service);
    assert!(metrics.get(ALLOWED) > 250, "{}", metrics.get(ALLOWED));
    assert_eq!(metrics.get(DENIED), 0);
    assert!((1..100).contains(&metrics.get(ASKS)));
    wait_for_units(&service);
    wait_until("every unit granted is accounted for", || {
        let metrics = Metrics::of(&service);
        let accounted = [ALLOWED, UNITS, RETURNED, EXPIRED].map(|name| metrics.get(name));
        metrics.get(GRANTED) == accounted.iter().sum::<u64>()
    });

    wait_until("nothing is left", || take(&mut http, 500) == 0);
    let metrics = Metrics::of(&service);
    assert!(metrics.get(DENIED) > 250, "{}", metrics.get(DENIED));
    assert_eq!(metrics.get(UNITS), 0);

    let in_memory = Service::start(&[], RULES);
    assert_eq!(take(&mut in_memory.http(), 10), 10);
    let exposed = in_memory.http().get("/metrics").body;
    assert!(!exposed.contains("fluxgate_lease_"), "{exposed}");
}

#[test]
fn units_on_lease_are_shown_and_count_as_used() {
    let server = RedisServer::start();
    let service = start(&server);
    let mut http = service.http();
    assert_eq!(take(&mut http, 50), 50);
    // Units may be on their way.
    wait_until(
        "the state is what was admitted and what is on lease",
        || {
            let here = Metrics::of(&service).get(UNITS);
            let band = state(&mut http, "leased");
            assert!(band["on_lease"].as_u64().unwrap() >= here, "{band}");
            here > 0 && band["remaining"] == 1000 - 50 - here
        },
    );
    let band = state(&mut http, "leased");
    let explained = json_of(
        &mut http,
        "/v1/explain",
        r#"{"user":"ann","path":"/leased"}"#,
    );
    let rule = &explained["rules"][0];
    assert_eq!(rule["lease"], json!({ "share": "50%", "for": "1m" }));
    assert_eq!(rule["bands"][0]["on_lease"], band["on_lease"]);
    assert_eq!(rule["bands"][0]["before"]["remaining"], band["remaining"]);

    // Without a lease there is nothing about it.
    assert_eq!(state(&mut http, "exact").get("on_lease"), None);
    assert_eq!(explained["rules"][1].get("lease"), None);
    let exact = json_of(
        &mut http,
        "/v1/explain",
        r#"{"user":"ann","path":"/exact"}"#,
    );
    assert_eq!(exact["rules"][1]["bands"][0].get("on_lease"), None);
}

#[test]
fn the_command_explains_leases_on_an_empty_store() {
    let dir = Dir::with_rules(RULES);
    let request = r#"{"user":"ann","path":"/leased"}"#;
    let run = dir.run(&["explain", "--rules", "rules.yaml", "--request", request]);
    let expected = "  lease: 50% for 1m";
    let lines = run.lines();
    assert_eq!(lines.iter().filter(|line| **line == expected).count(), 1);
}

#[test]
fn an_instance_that_ends_returns_what_it_has_on_lease() {
    let server = RedisServer::start();
    let (first, second) = (start(&server), start(&server));
    let mut admitted = take(&mut first.http(), 200);
    assert_eq!(admitted, 200);
    wait_for_units(&first);
    first.program.signal("TERM");
    assert!(first.program.wait().success());

    let mut http = second.http();
    assert_eq!(state(&mut http, "leased")["on_lease"], 0);
    // A denial may come while the last units are on their way.
    wait_until("the other instance has used all units", || {
        admitted += take(&mut http, 100);
        admitted >= 1000
    });
    admitted += take(&mut http, 100);
    assert_eq!(admitted, 1000);
}

#[test]
fn an_instance_with_leases_ends_without_redis() {
    let server = RedisServer::start();
    let service = start(&server);
    assert_eq!(take(&mut service.http(), 200), 200);
    wait_for_units(&service);
    // It accepts connections and answers nothing.
    server.pause();
    service.program.signal("TERM");
    let (status, took) = timed(|| service.program.wait());
    server.resume();
    assert!(status.success());
    // The deadline of the store is 10 s.
    assert!(took < Duration::from_secs(30), "{took:?}");
}
