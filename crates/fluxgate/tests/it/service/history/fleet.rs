//! What happened, of several instances that share a Redis.

use std::thread;

use fluxgate_testkit::{FaultProxy, Mode, RedisServer, wait_until};
use serde_json::{Value, json};

use super::{check, check_many, expected, minutes, on_redis, sums};
use crate::service::Service;

const RULES: &str = r#"
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, algorithm: fixed_window, bands: [ { capacity: 60, window: 30d } ] }
      - { id: seen, mode: shadow, scope: per_user, algorithm: fixed_window, bands: [ { capacity: 30, window: 30d } ] }
"#;
const USERS: usize = 1_000;
/// Of each user.
const REQUESTS: usize = 100;

/// Returns all requests of every second user.
fn requests(first: usize) -> Vec<Value> {
    let users = (first..USERS).step_by(2);
    let of_user = |user| std::iter::repeat_n(json!({ "user": format!("u{user}") }), REQUESTS);
    users.flat_map(of_user).collect()
}

#[test]
fn the_sums_of_two_instances_equal_the_truth_after_a_death_and_a_restart() {
    let server = RedisServer::start();
    let config = on_redis(&server, RULES);
    let start = || Service::start(&[], &config);
    let (first, second) = (start(), start());
    thread::scope(|scope| {
        scope.spawn(|| check_many(&first, &requests(0)));
        scope.spawn(|| check_many(&second, &requests(1)));
    });
    let users = USERS as u64;
    let truth = expected([
        ("per-user allowed", 60 * users),
        ("per-user denied", 40 * users),
        ("seen allowed", 30 * users),
        ("seen shadow_denied", 30 * users),
    ]);
    for service in [&first, &second] {
        wait_until("all is written", || sums(service, "") == truth);
        assert_eq!(sums(service, &minutes()), truth);
    }
    // What it has not written yet is missing, and nothing else.
    for _ in 0..10 {
        check(&first, &json!({ "user": "u0" }));
    }
    first.program.kill();
    let denied = sums(&second, "")["per-user denied"];
    assert!((40 * users..=40 * users + 10).contains(&denied), "{denied}");
    check(&second, &json!({ "user": "u0" }));
    // Nothing is lost when it is asked to end.
    second.program.signal("TERM");
    assert!(second.program.wait().success());
    let both = [start(), start()];
    for service in &both {
        let mut found = sums(service, &minutes());
        assert_eq!(
            found.insert("per-user denied".into(), 40 * users),
            Some(denied + 1)
        );
        assert_eq!(found, truth);
    }
}

#[test]
fn an_instance_sees_its_own_newest_second_and_others_see_it_soon() {
    let server = RedisServer::start();
    let config = on_redis(&server, RULES);
    let (first, second) = (Service::start(&[], &config), Service::start(&[], &config));
    check(&first, &json!({ "user": "ann" }));
    let one = expected([("per-user allowed", 1), ("seen allowed", 1)]);
    assert_eq!(sums(&first, ""), one);
    wait_until("the other sees it", || sums(&second, "") == one);
    for _ in 0..3 {
        check(&second, &json!({ "user": "ann" }));
        check(&first, &json!({ "user": "ann" }));
    }
    let all = expected([("per-user allowed", 7), ("seen allowed", 7)]);
    for service in [&first, &second] {
        wait_until("both see all", || sums(service, "") == all);
        // Whatever is read while it is written.
        for _ in 0..50 {
            assert_eq!(sums(service, ""), all);
        }
    }
}

/// Returns the value of a metric.
fn metric(service: &Service, name: &str) -> u64 {
    let metrics = service.http().get("/metrics").body;
    let line = metrics.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit_once(' '));
    value.map_or(0, |(_, value)| value.parse().unwrap())
}

const LOCAL: &str = r#"
rule_sets:
  api:
    rules:
      - { id: all, scope: global, algorithm: fixed_window, bands: [ 1000000/h ] }
"#;

/// Sends a check and returns whether it was answered in good time.
fn is_quick(service: &Service) -> bool {
    let (_, took) = fluxgate_testkit::timed(|| check(service, &json!({ "user": "ann" })));
    took.as_millis() < 1_000
}

#[test]
fn no_decision_waits_for_a_record_that_cannot_be_written_and_nothing_is_lost() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let store = format!(
        "store: {{ redis: {{ url: \"{}\" }} }}\n",
        proxy.url("redis")
    );
    let service = Service::start(&[], &format!("{store}{LOCAL}"));
    let mut sent = 0;
    let mut send = |count: usize| {
        for _ in 0..count {
            assert!(is_quick(&service));
            sent += 1;
        }
        sent
    };
    let failures = || metric(&service, "fluxgate_history_write_failures_total");
    send(10);
    // Redis hangs.
    proxy.set_mode(Mode::BlackHole);
    send(10);
    wait_until("a write has failed", || failures() > 0);
    proxy.set_mode(Mode::Pass);
    let before = failures();
    send(10);
    // Redis is gone.
    proxy.set_mode(Mode::Refuse);
    proxy.close_connections();
    send(10);
    wait_until("another write has failed", || failures() > before);
    proxy.set_mode(Mode::Pass);
    // Redis is full.
    let mut cli = server.cli();
    wait_until("a write has succeeded", || {
        metric(&service, "fluxgate_history_waiting") == 0
    });
    cli.command(&["CONFIG", "SET", "maxmemory", "1"])
        .expect_ok();
    let before = failures();
    let total = send(10);
    wait_until("a write has found no room", || failures() > before);
    cli.command(&["CONFIG", "SET", "maxmemory", "0"])
        .expect_ok();
    wait_until("all is there, once", || {
        let answer = service.http().get("/v1/history");
        answer.status == 200 && sums(&service, "").values().sum::<u64>() == total
    });
    assert_eq!(metric(&service, "fluxgate_history_lost_total"), 0);
    let service_b = Service::start(&[], &format!("{store}{LOCAL}"));
    wait_until("the fleet has it, once", || {
        sums(&service_b, &minutes()).values().sum::<u64>() == total
    });
}
