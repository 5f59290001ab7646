//! Events that are sent to webhooks.

use std::time::Duration;

use fluxgate_testkit::{RedisServer, wait_until};
use serde_json::{Value, json};

use super::receiver::{Answer, Receiver, SECRET, in_order};
use super::{NOTIFIES, events, on_redis, spend};
use crate::service::Service;
use crate::service::telemetry::Metrics;
use crate::support::Dir;

/// Starts a service whose directory has the secret of webhooks.
fn start_with_secret(config: &str) -> Service {
    let dir = Dir::new();
    dir.write("secret", format!("{SECRET}\n"));
    Service::start_in(dir, &[], config)
}

fn start(server: &RedisServer, receiver: &Receiver, kinds: &str) -> Service {
    let config = format!("{}{NOTIFIES}", receiver.config(kinds));
    start_with_secret(&on_redis(server, &config))
}

/// Lets users of these numbers reach 80%, one after the other.
fn reach(service: &Service, users: std::ops::Range<u32>) {
    for user in users {
        spend(service, &format!("u{user}"), 8);
    }
}

/// Returns what [`in_order`] returns for the users of these numbers.
fn expected(users: std::ops::Range<u32>) -> Vec<String> {
    users.map(|user| format!("\"user=u{user}\" 80")).collect()
}

/// Returns the samples of a metric of the webhook.
fn sum(service: &Service, name: &str) -> u64 {
    Metrics::of(service).sum(&format!("fluxgate_webhook_{name}{{"))
}

#[test]
fn events_are_posted_signed_and_in_order_without_redis_too() {
    let receiver = Receiver::start();
    let config = format!("{}{NOTIFIES}", receiver.config("[threshold]"));
    let service = start_with_secret(&config);
    reach(&service, 0..20);
    let received = receiver.wait_for(20);
    assert_eq!(in_order(&received), expected(0..20));
    assert_eq!(received, events(&service), "each once, as they are listed");
    wait_until("the counts", || sum(&service, "sent_total") == 20);
    assert_eq!(
        (sum(&service, "queue"), sum(&service, "lost_total")),
        (0, 0)
    );
}

#[test]
fn every_event_arrives_in_order_whatever_the_receiver_does() {
    let server = RedisServer::start();
    let mut receiver = Receiver::start();
    let service = start(&server, &receiver, "[threshold]");
    reach(&service, 0..3);
    receiver.wait_for(3);
    // Failing.
    receiver.answer(Answer::Status(500));
    reach(&service, 3..6);
    wait_until("attempts", || sum(&service, "failures_total") >= 2);
    assert_eq!(sum(&service, "queue"), 3);
    assert_eq!(service.logs("the webhook does not accept events").len(), 1);
    // Redirects are not followed.
    receiver.answer(Answer::Redirect);
    let attempts = receiver.attempts();
    wait_until("another attempt", || receiver.attempts() > attempts + 1);
    receiver.answer(Answer::Status(200));
    receiver.wait_for(6);
    // Down.
    receiver.stop();
    reach(&service, 6..9);
    let failures = sum(&service, "failures_total");
    wait_until("attempts", || {
        sum(&service, "failures_total") > failures + 1
    });
    receiver.restart();
    receiver.wait_for(9);
    // Slow, and with too much to say.
    receiver.answer(Answer::Late(Duration::from_millis(500)));
    reach(&service, 9..12);
    receiver.wait_for(12);
    receiver.answer(Answer::Endless);
    reach(&service, 12..14);
    let received = receiver.wait_for(14);
    assert_eq!(in_order(&received), expected(0..14));
    wait_until("an empty queue", || sum(&service, "queue") == 0);
    assert_eq!(sum(&service, "lost_total"), 0);
}

#[test]
fn one_instance_of_a_fleet_sends_and_another_takes_over_when_it_is_killed() {
    let server = RedisServer::start();
    let receiver = Receiver::start();
    let mut services: Vec<_> = (0..3)
        .map(|_| start(&server, &receiver, "[threshold]"))
        .collect();
    reach(&services[0], 0..10);
    let received = receiver.wait_for(10);
    assert_eq!(received.len(), 10, "each is sent once");
    for round in 1..3 {
        // Events wait while nobody accepts them, and their sender dies.
        receiver.answer(Answer::Status(503));
        let users = 10 * round..10 * round + 10;
        reach(&services[0], users.clone());
        // What is not in the log of the fleet yet would be lost with the instance.
        wait_until("the log has all events", || {
            let log = services[0].http().get("/v1/events").body;
            users
                .clone()
                .all(|user| log.contains(&format!("\"user=u{user}\"")))
        });
        let sender = fluxgate_testkit::wait_for("the sender", || {
            services
                .iter()
                .position(|service| sum(service, "queue") > 0)
        });
        let killed = services.remove(sender);
        killed.program.kill();
        receiver.answer(Answer::Status(200));
        receiver.wait_for(10 * round as usize + 10);
    }
    let received = receiver.accepted();
    assert_eq!(in_order(&received), expected(0..30));
    assert!(received.len() < 60, "few arrive twice: {}", received.len());
}

#[test]
fn a_restart_of_the_service_goes_on_where_it_ended() {
    let server = RedisServer::start();
    let receiver = Receiver::start();
    let service = start(&server, &receiver, "[threshold]");
    reach(&service, 0..3);
    receiver.wait_for(3);
    receiver.answer(Answer::Status(500));
    reach(&service, 3..6);
    wait_until("an attempt", || sum(&service, "failures_total") > 0);
    service.program.signal("TERM");
    service.program.wait();
    receiver.answer(Answer::Status(200));
    let _service = start(&server, &receiver, "[threshold]");
    let received = receiver.wait_for(6);
    assert_eq!(in_order(&received), expected(0..6));
    assert_eq!(received.len(), 6);
}

#[test]
fn a_store_that_fails_is_told_while_it_is_down_and_sending_goes_on_afterwards() {
    let server = RedisServer::builder().config("appendonly yes").start();
    let receiver = Receiver::start();
    let service = start(&server, &receiver, "[threshold, store]");
    reach(&service, 0..3);
    receiver.wait_for(3);
    server.kill();
    let failed = fluxgate_testkit::wait_for("the failure", || {
        let accepted = receiver.accepted();
        accepted
            .into_iter()
            .find(|event| event["state"] == "failed")
    });
    assert_eq!(
        (&failed["kind"], &failed["id"]),
        (&json!("store"), &Value::Null)
    );
    server.restart();
    fluxgate_testkit::wait_for("the recovery", || {
        let accepted = receiver.accepted();
        accepted.into_iter().find(|event| event["state"] == "back")
    });
    wait_until("the store decides", || {
        spend(&service, "other", 1)["outcome"] == "allowed"
    });
    reach(&service, 3..6);
    let received = wait_for_thresholds_at(&receiver, 6);
    assert_eq!(in_order(&received), expected(0..6));
}

#[test]
fn what_does_not_fit_into_the_queue_is_lost_and_counted() {
    // As many as wait for a webhook without Redis.
    const MOST: u64 = 5_000;
    let receiver = Receiver::start();
    receiver.answer(Answer::Status(503));
    let config = format!("{}{NOTIFIES}", receiver.config("[threshold]"));
    let service = start_with_secret(&config);
    // Two events of each.
    let checks: Vec<_> = (0..3_000)
        .map(|user| json!({ "rule_set": "api", "user": format!("u{user}"), "cost": 10 }))
        .collect();
    for part in checks.chunks(500) {
        let body = json!({ "checks": part }).to_string();
        let answer = service.http().post("/v1/check/batch", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    wait_until("the oldest to be lost", || {
        (sum(&service, "queue"), sum(&service, "lost_total")) == (MOST, 1_000)
    });
    receiver.answer(Answer::Status(200));
    wait_until("the others to arrive", || {
        sum(&service, "sent_total") == MOST
    });
    assert_eq!(
        (sum(&service, "queue"), sum(&service, "lost_total")),
        (0, 1_000)
    );
    let listed = events(&service);
    let accepted = receiver.accepted();
    assert_eq!(accepted.len() as u64, MOST);
    assert_eq!(accepted[accepted.len() - listed.len()..], listed);
}

#[test]
fn the_webhooks_of_a_config_can_be_tried() {
    let receiver = Receiver::start();
    let dir = Dir::new();
    dir.write("secret", SECRET);
    let config = format!("rule_sets: {{}}\n{}", receiver.config("[store]"));
    dir.write("fluxgate.yaml", config);
    let command = ["events", "--test-webhook", "fluxgate.yaml"];
    let run = dir.run(&command);
    let shown = receiver.url().replace("token=1", "***");
    let expected = format!("{shown}: accepted with 204 No Content\n");
    assert_eq!((run.code, &run.stdout), (Some(0), &expected), "{run:?}");
    assert_eq!(receiver.accepted()[0]["kind"], "test");
    receiver.answer(Answer::Status(500));
    let run = dir.run(&command);
    assert_eq!(run.code, Some(69), "{run:?}");
    assert!(run.stdout.contains("500"), "{run:?}");
    dir.write("fluxgate.yaml", "rule_sets: {}\n");
    let run = dir.run(&command);
    assert_eq!(run.code, Some(78), "{run:?}");
}

/// Waits for so many thresholds, and returns them.
fn wait_for_thresholds_at(receiver: &Receiver, count: usize) -> Vec<Value> {
    fluxgate_testkit::wait_for("the thresholds", || {
        let accepted = receiver.accepted().into_iter();
        let accepted: Vec<_> = accepted
            .filter(|event| event["kind"] == "threshold")
            .collect();
        (in_order(&accepted).len() >= count).then_some(accepted)
    })
}
