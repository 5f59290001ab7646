//! Where shares of limits meet other features: windows that end, overrides, the near cache, charges in
//! any case, settlements, waits. What they have of their own is in `thresholds`.

use std::process::Command;
use std::time::Duration;

use fluxgate_testkit::{RedisServer, now, wait_until};
use serde_json::{Value, json};

use super::thresholds::{on_each_store, settle, shares_of};
use super::{NOTIFIES, events, spend, start, wait_for_thresholds};
use crate::service::Service;
use crate::support::unix_time;

/// A little more than the time within which a use may have fallen for an instant only.
const SECOND: Duration = Duration::from_millis(1_100);

/// Returns how many seconds of this minute have passed.
fn second_of_minute() -> u64 {
    unix_time().as_secs() % 60
}

#[test]
fn a_share_is_told_again_in_the_next_window_and_once_in_a_fleet() {
    let config = NOTIFIES.replace("capacity: 10, window: 1h", "capacity: 10, window: 1m");
    let config = config.replace("bands:", "algorithm: fixed_window, bands:");
    let server = RedisServer::start();
    let alone = Service::start(&[], &config);
    let fleet = [start(&server, &config), start(&server, &config)];
    wait_until("a minute with some time left", || second_of_minute() < 45);
    spend(&alone, "ann", 10);
    for service in &fleet {
        spend(service, "ann", 5);
    }
    for service in [&alone, &fleet[0], &fleet[1]] {
        wait_for_thresholds(service, 2);
    }
    wait_until("the end of the minute", || second_of_minute() >= 45);
    wait_until("the next minute", || second_of_minute() < 45);
    // All instances find the next window.
    spend(&alone, "ann", 8);
    for (service, cost) in [
        (&fleet[0], 2),
        (&fleet[1], 6),
        (&fleet[0], 1),
        (&fleet[1], 1),
    ] {
        spend(service, "ann", cost);
    }
    settle(&alone, "eve");
    assert_eq!(shares_of(&alone, "ann"), [80, 100, 80]);
    for service in &fleet {
        wait_for_thresholds(service, 4);
    }
    settle(&fleet[0], "eve");
    assert_eq!(shares_of(&fleet[0], "ann"), [80, 100, 80, 100]);
}

/// Returns a time that many seconds from now, as a config has it.
fn seconds_from_now(seconds: u64) -> String {
    let at = format!("@{}", unix_time().as_secs() + seconds);
    let date = Command::new("date")
        .args(["-u", "-d", &at, "+%Y-%m-%dT%H:%M:%SZ"])
        .output();
    String::from_utf8(date.unwrap().stdout)
        .unwrap()
        .trim()
        .into()
}

#[test]
fn when_an_override_ends_its_share_is_that_of_the_rule() {
    let server = RedisServer::start();
    for is_shared in [false, true] {
        let until = seconds_from_now(10);
        let more = |user: &str| {
            format!(
                "{{ identity: {user}, bands: [ {{ id: hour, capacity: 20, window: 1h }} ], \
                 until: \"{until}\" }}"
            )
        };
        let overrides = format!("overrides: [ {}, {} ], notify:", more("ann"), more("bob"));
        let config = NOTIFIES.replace("notify:", &overrides);
        let service = if is_shared {
            start(&server, &config)
        } else {
            Service::start(&[], &config)
        };
        assert_eq!(spend(&service, "ann", 9)["limit"], 20, "it still applies");
        spend(&service, "bob", 16);
        assert_eq!(
            wait_for_thresholds(&service, 1),
            [("user=bob".to_owned(), 80)]
        );
        wait_until("the end of the override", || {
            let state = "/v1/state?rule_set=api&rule=per-user&identity=ann";
            let state = service.http().get(state);
            let state: Value = serde_json::from_str(&state.body).unwrap();
            state["bands"][0]["limit"] == 10
        });
        // Nine of twenty are as much as four and a half of ten.
        spend(&service, "ann", 4);
        // Eight of ten are sixteen of twenty: it was there before.
        spend(&service, "bob", 1);
        settle(&service, "eve");
        assert_eq!(shares_of(&service, "ann"), [80]);
        assert_eq!(shares_of(&service, "bob"), [80]);
        let all = events(&service);
        let of_ann = all.iter().find(|event| event["identity"] == "user=ann");
        assert_eq!(of_ann.unwrap()["limit"], 10);
    }
}

#[test]
fn denials_tell_nothing_twice_with_the_near_cache_or_without() {
    on_each_store(NOTIFIES, |service| {
        spend(service, "ann", 10);
        wait_for_thresholds(service, 2);
        for _ in 0..200 {
            assert_eq!(spend(service, "ann", 1)["allowed"], false);
        }
        settle(service, "eve");
        assert_eq!(shares_of(service, "ann"), [80, 100]);
    });
    // It does decide.
    let server = RedisServer::start();
    let service = start(&server, NOTIFIES);
    spend(&service, "ann", 10);
    let before = server.cli().calls("evalsha");
    for _ in 0..200 {
        spend(&service, "ann", 1);
    }
    assert!(server.cli().calls("evalsha") < before + 200);
    // A reset through another instance is seen within a second.
    let other = start(&server, NOTIFIES);
    let reset = json!({ "rule_set": "api", "rule": "per-user", "identity": "ann" });
    assert_eq!(
        other.http().post("/v1/reset", &reset.to_string()).status,
        200
    );
    wait_until("a request passes", || {
        spend(&service, "ann", 1)["allowed"] == true
    });
    spend(&service, "ann", 7);
    wait_until("it is told again", || {
        shares_of(&service, "ann") == [80, 100, 80]
    });
}

#[test]
fn a_charge_in_any_case_tells_what_a_denial_reaches() {
    let config = NOTIFIES.replace("notify:", "charge: always, notify:");
    on_each_store(&config, |service| {
        spend(service, "ann", 6);
        let denied = spend(service, "ann", 6);
        assert_eq!(
            (&denied["allowed"], &denied["remaining"]),
            (&json!(false), &json!(0))
        );
        for _ in 0..20 {
            spend(service, "ann", 1);
        }
        settle(service, "eve");
        let mut shares = shares_of(service, "ann");
        shares.sort_unstable();
        assert_eq!(shares, [80, 100]);
    });
}

#[test]
fn a_hold_tells_what_it_reserves_and_again_after_it_was_settled_for_less() {
    on_each_store(NOTIFIES, |service| {
        let hold = |cost: u64| {
            let body = json!({ "rule_set": "api", "user": "ann", "cost": cost, "hold": "1m" });
            let answer = service.http().post("/v1/check", &body.to_string());
            let answer: Value = serde_json::from_str(&answer.body).unwrap();
            answer["hold"].as_str().unwrap().to_owned()
        };
        let id = hold(9);
        wait_for_thresholds(service, 1);
        let settle_it = json!({ "hold": id, "cost": 2 }).to_string();
        let answer = service.http().post("/v1/settle", &settle_it);
        assert_eq!(answer.status, 200, "{answer:?}");
        // Within a second it may have fallen for an instant only.
        let settled = now();
        wait_until("a second to pass", || settled.elapsed() > SECOND);
        spend(service, "ann", 1);
        spend(service, "ann", 6);
        settle(service, "eve");
        assert_eq!(shares_of(service, "ann"), [80, 80]);
    });
}
