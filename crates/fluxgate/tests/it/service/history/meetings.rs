//! Where the record meets other features: the near cache, leases, batches, clocks that jump.

use std::process::Command;
use std::time::Duration;

use fluxgate_testkit::{RedisServer, Skew, SleepyClock, wait_until};
use serde_json::{Value, json};

use super::denials::all;
use super::{check, check_many, expected, get, now_ms, on_redis, sums};
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
    let requests: Vec<_> = (0..200).map(|_| json!({ "user": "ann" })).collect();
    for config in [rules.to_owned(), on_redis(&server, rules)] {
        let service = Service::start(&[], &config);
        check_many(&service, &requests);
        assert_eq!(
            sums(&service, ""),
            expected([("r allowed", 1), ("r denied", 199), ("late allowed", 200)])
        );
    }
    let calls = server.cli().calls("evalsha");
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
    // In memory nothing is leased.
    for config in [rules.to_owned(), on_redis(&server, rules)] {
        let service = Service::start(&[], &config);
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
            let mut lines = metrics.lines();
            let line = lines.find(|line| line.starts_with(leased));
            let has_leased = line.is_some_and(|line| !line.ends_with(" 0"));
            (has_leased || !config.contains("redis")) && denied > 0
        });
        assert_eq!(
            sums(&service, ""),
            expected([("leased allowed", allowed), ("leased denied", denied)])
        );
        let (rows, _) = all(&service, "");
        let rows: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
        assert_eq!(rows, denied);
        let top = get(&service, "/v1/top?by=requests");
        let entry = &top["entries"][0];
        let counts = [
            &entry["count"],
            &entry["outcomes"]["allowed"],
            &entry["outcomes"]["denied"],
        ];
        assert_eq!(
            counts.map(Value::as_u64),
            [allowed + denied, allowed, denied].map(Some)
        );
    }
}

/// A refund, a reset and the end of an override change what passes, and nothing of what was counted.
#[test]
fn what_was_counted_stays_whatever_happens_to_the_state() {
    let server = RedisServer::start();
    for is_shared in [false, true] {
        let until = format!("@{}", now_ms() / 1000 + 10);
        let date = Command::new("date")
            .args(["-u", "-d", &until, "+%Y-%m-%dT%H:%M:%SZ"])
            .output();
        let until = String::from_utf8(date.unwrap().stdout).unwrap();
        let rules = format!(
            "
rule_sets:
  api:
    rules:
      - id: r
        scope: per_user
        algorithm: fixed_window
        bands: [ {{ id: long, capacity: 2, window: 30d }} ]
        overrides: [ {{ identity: ann, bands: [ {{ id: long, capacity: 4, window: 30d }} ], until: \"{}\" }} ]
",
            until.trim()
        );
        let config = if is_shared {
            on_redis(&server, &rules)
        } else {
            rules
        };
        let service = Service::start(&[], &config);
        let ann = json!({ "user": "ann" });
        let outcomes = |count: usize| {
            let decide = |_| check(&service, &ann)["allowed"] == true;
            (0..count).map(decide).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(5), [true, true, true, true, false]);
        wait_until("the end of the override", || {
            let state = get(&service, "/v1/state?rule_set=api&rule=r&identity=ann");
            state["bands"][0]["limit"] == 2
        });
        assert_eq!(outcomes(2), [false, false]);
        let change = |path: &str, units: Option<u64>| {
            let mut body = json!({ "rule_set": "api", "rule": "r", "identity": "ann" });
            if let Some(units) = units {
                body["units"] = units.into();
            }
            let answer = service.http().post(path, &body.to_string());
            assert_eq!(answer.status, 200, "{answer:?}");
        };
        change("/v1/refund", Some(3));
        assert_eq!(outcomes(2), [true, false]);
        change("/v1/reset", None);
        assert_eq!(outcomes(3), [true, true, false]);
        assert_eq!(
            sums(&service, ""),
            expected([("r allowed", 7), ("r denied", 5)])
        );
        let (rows, dropped) = all(&service, "");
        let rows: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
        assert_eq!((rows, dropped), (5, 0));
        // Redis has it within five seconds.
        wait_until("the use of the last hour", || {
            let usage = get(&service, "/v1/usage");
            let row = &usage["usage"][0];
            row["per_hour"] == 7 && row["used_share"] == 1.0
        });
    }
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
