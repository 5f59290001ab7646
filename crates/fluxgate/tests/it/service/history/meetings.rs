//! Where the record meets other features: the near cache, leases, batches, clocks that jump.

use std::process::Command;
use std::time::Duration;

use fluxgate_testkit::{RedisServer, Skew, SleepyClock, wait_until};
use serde_json::json;

use super::denials::all;
use super::{check, check_many, expected, get, on_redis, sums};
use crate::service::Service;
use crate::support::Dir;

#[test]
fn denials_of_the_near_cache_are_counted_like_any_denial() {
    let server = RedisServer::start();
    let rules = "
rule_sets:
  api:
    rules:
      - { id: r, scope: per_user, algorithm: fixed_window, bands: [ 1/h ] }
      - { id: late, scope: per_user, charge: always, algorithm: fixed_window, bands: [ 1000/h ] }
";
    let service = Service::start(&[], &on_redis(&server, rules));
    let requests: Vec<_> = (0..200).map(|_| json!({ "user": "ann" })).collect();
    let mut cli = server.cli();
    check_many(&service, &requests);
    let calls = cli.calls("evalsha");
    assert_eq!(
        sums(&service, ""),
        expected([("r allowed", 1), ("r denied", 199), ("late allowed", 200)])
    );
    // They are charged in any case, so the cache cannot decide them. Without such a rule it does.
    let cached = rules.replace(", charge: always", "");
    let other = RedisServer::start();
    let service = Service::start(&[], &on_redis(&other, &cached));
    check_many(&service, &requests);
    assert!(other.cli().calls("evalsha") < calls);
    assert_eq!(
        sums(&service, ""),
        expected([("r allowed", 1), ("r denied", 199), ("late allowed", 1)])
    );
    let (rows, dropped) = all(&service, "");
    assert_eq!(
        (rows.len(), &rows[0]["count"], dropped),
        (1, &json!(199), 0)
    );
}

#[test]
fn decisions_by_leases_are_counted_like_any_decision() {
    let server = RedisServer::start();
    let rules = "
rule_sets:
  api:
    rules:
      - { id: leased, scope: per_user, algorithm: fixed_window, lease: { share: 50%, for: 1m }, bands: [ { capacity: 1000, window: 30d } ] }
";
    let service = Service::start(&[], &on_redis(&server, rules));
    let (mut allowed, mut denied) = (0, 0);
    let leased = "fluxgate_lease_decisions_total{outcome=\"allowed\"}";
    wait_until("leases have decided, and all is used up", || {
        for _ in 0..100 {
            let is_allowed = check(&service, &json!({ "user": "ann" }))["allowed"] == true;
            *(if is_allowed {
                &mut allowed
            } else {
                &mut denied
            }) += 1;
        }
        let metrics = service.http().get("/metrics").body;
        let line = metrics.lines().find(|line| line.starts_with(leased));
        !line.unwrap().ends_with(" 0") && denied > 0
    });
    assert_eq!(
        sums(&service, ""),
        expected([("leased allowed", allowed), ("leased denied", denied)])
    );
    let (rows, _) = all(&service, "");
    let rows: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(rows, denied);
}

#[test]
fn each_check_of_a_batch_counts_on_its_own() {
    let rules = "
rule_sets:
  api:
    rules:
      - { id: blocked, action: deny, match: { user: eve } }
      - { id: r, scope: per_user, bands: [ 1/h ] }
";
    let service = Service::start(&[], rules);
    let batch = json!({ "checks": [{ "user": "ann" }, { "user": "eve" }, { "user": "ann" }] });
    let answer = service.http().post("/v1/check/batch", &batch.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(
        sums(&service, ""),
        expected([("blocked forbidden", 1), ("r allowed", 1), ("r denied", 1)])
    );
}

#[test]
fn holds_and_slots_are_counted_when_they_are_taken() {
    let rules = "
rule_sets:
  api:
    rules:
      - { id: slots, scope: per_user, algorithm: concurrency, bands: [ { capacity: 1 } ] }
";
    let service = Service::start(&[], rules);
    let hold = check(&service, &json!({ "user": "ann" }))["hold"].clone();
    check(&service, &json!({ "user": "ann" }));
    let release = json!({ "hold": hold }).to_string();
    assert_eq!(service.http().post("/v1/release", &release).status, 200);
    assert_eq!(
        sums(&service, ""),
        expected([("slots allowed", 1), ("slots denied", 1)])
    );
}

/// What is counted while the clock is wrong has the time that the clock shows. Nothing is lost.
#[test]
fn a_clock_that_jumps_loses_nothing() {
    let rules = "
rule_sets:
  api:
    rules:
      - { id: r, scope: global, algorithm: fixed_window, bands: [ { capacity: 1000000, window: 30d } ] }
";
    let clock = SleepyClock::new();
    let dir = Dir::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fluxgate"));
    clock.apply(&mut command);
    let variables = command.get_envs().filter_map(|(name, value)| {
        let (name, value) = (name.to_str()?, value?.to_str()?);
        Some(format!("{name}='{value}' "))
    });
    let variables: String = variables.collect();
    let binary = env!("CARGO_BIN_EXE_fluxgate");
    dir.write(
        "start",
        format!("#!/bin/sh\n{variables}exec '{binary}' \"$@\"\n"),
    );
    let start = dir.path("start");
    let chmod = Command::new("chmod").arg("+x").arg(&start).status();
    assert!(chmod.unwrap().success());
    dir.write(
        "fluxgate.yaml",
        format!("listen: {{ api: \"127.0.0.1:0\" }}\n{rules}"),
    );
    let service = Service::open_by(dir, &start, &["run", "--config", "fluxgate.yaml"], 1);
    service.wait_until_ready();
    const HOUR: u64 = 3_600_000;
    let decide = |count: usize| {
        for _ in 0..count {
            check(&service, &json!({ "user": "ann" }));
        }
    };
    // The service's own time, as it shows it.
    let now = || get(&service, "/v1/history")["from_ms"].as_u64().unwrap() + 15 * 60_000;
    let within = |hours: u64| {
        let sums = sums(&service, &format!("from={}", now() - hours * HOUR));
        sums.values().sum::<u64>()
    };
    let ahead = |hours: u64| clock.shift(Skew::Ahead(Duration::from_millis(hours * HOUR)));
    decide(1);
    assert_eq!(within(1), 1);
    ahead(3);
    decide(2);
    assert_eq!((within(1), within(4)), (2, 3));
    clock.shift(Skew::Behind(Duration::from_millis(24 * HOUR)));
    decide(4);
    assert_eq!(within(1), 4);
    clock.shift(Skew::NONE);
    decide(8);
    // What was counted ahead of time is seen when its time has come.
    assert_eq!((within(1), within(30)), (9, 13));
    ahead(3);
    assert_eq!(within(40), 15);
}
