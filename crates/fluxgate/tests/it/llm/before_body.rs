//! What needs nothing of the body is decided before the body is read.

use std::time::Duration;

use fluxgate_testkit::{RawClient, RedisServer, now, wait_until};

use super::http2_client::Http2Client;
use super::*;
use crate::service::telemetry::Metrics;

/// Every rule needs a key, and one call may run at a time.
const KEYED: &str = r#"
rule_sets:
  s:
    rules:
      - { id: total, scope: per_api_key, on_missing_key: deny, algorithm: fixed_window, cost: "llm:total_tokens", bands: [ { capacity: 100000, window: 300d } ] }
      - { id: requests, scope: per_api_key, on_missing_key: deny, algorithm: fixed_window, bands: [ { capacity: 2, window: 300d } ] }
      - { id: slots, scope: per_api_key, on_missing_key: deny, algorithm: concurrency, bands: [ { capacity: 1 } ] }
"#;

/// Sends the head of a call, whose body does not follow.
fn send_head(service: &Service, headers: &str) -> RawClient {
    let mut client = RawClient::connect(service.address("gateway"));
    client.send(format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
    client
}

#[test]
fn a_call_without_a_key_is_denied_before_its_body_arrives() {
    let model = ModelServer::start();
    let service = start_with(&model, KEYED);
    for headers in [
        "Content-Length: 1000\r\n",
        "Content-Length: 30000000\r\n",
        "Content-Length: 1000\r\nExpect: 100-continue\r\n",
        "Transfer-Encoding: chunked\r\n",
    ] {
        let answer = send_head(&service, headers).read_answer().unwrap();
        assert_eq!(answer.status, 429, "{headers}: {answer:?}");
    }
    let mut client = Http2Client::connect(&service);
    client.begin(CHAT, &[], 1000);
    let answers = client.read_answers();
    assert!(answers[0].contains("429"), "{answers:?}");
    // Each is recorded, once.
    let never = "fluxgate_decisions_total{rule_set=\"s\",rule=\"total\",outcome=\"never\"}";
    assert_eq!(Metrics::of(&service).get(never), 5);
    assert!(model.requests().is_empty());
}

#[test]
fn action_rules_decide_before_the_body_arrives() {
    let model = ModelServer::start();
    let actions = "      - { id: blocked, action: deny, match: { path: [\"/blocked/**\"] } }\n      \
                   - { id: free, action: allow, match: { path: [\"/free/**\"] } }\n";
    let service = start_with(&model, &format!("{RULES}{actions}"));
    let mut client = RawClient::connect(service.address("gateway"));
    client.send(format!(
        "POST /blocked{CHAT} HTTP/1.1\r\nHost: a\r\nX-API-Key: k\r\nContent-Length: 1000\r\n\r\n"
    ));
    let answer = client.read_answer().unwrap();
    assert_eq!(answer.status, 403, "{answer:?}");
    let answer = call(&service, &format!("/free{CHAT}"), &chat("m"));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(charged(&service), [0; 4]);
}

#[test]
fn requests_and_slots_are_decided_before_the_body_arrives() {
    let model = ModelServer::start();
    let service = start_with(&model, KEYED);
    let headers = "X-API-Key: k\r\nContent-Length: 1000\r\n";
    let running = read_until(&service, &streamed_chat("hold=2"), true, "üß");
    let answer = send_head(&service, headers).read_answer().unwrap();
    assert_eq!(answer.status, 429, "{answer:?}");
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(body.contains("slots/"), "{body}");
    assert_eq!(answer.values("x-ratelimit-remaining-requests"), ["1"]);
    assert_eq!(answer.values("x-ratelimit-limit-tokens"), ["100000"]);
    drop(running);
    wait_until("the slot is free", || {
        call(&service, CHAT, &chat("m")).status == 200
    });

    let answer = send_head(&service, headers).read_answer().unwrap();
    assert_eq!(answer.status, 429, "{answer:?}");
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(body.contains("requests/"), "{body}");
    assert_eq!(charged_by(&service, "requests"), 2);
}

/// Sends the head of a call with a key, and the beginning of its body.
fn send_beginning(service: &Service, body: &str) -> RawClient {
    let headers = format!("X-API-Key: k\r\nContent-Length: {}\r\n", body.len());
    let mut client = send_head(service, &headers);
    client.send(&body[..1]);
    client
}

#[test]
fn a_slot_and_a_request_are_taken_while_the_body_arrives() {
    let redis = RedisServer::start();
    for store in [
        "",
        &format!(
            "store: {{ redis: {{ url: \"{}\", deadline: 10s }} }}\n",
            redis.url()
        ),
    ] {
        check_what_a_slow_body_takes(store);
    }
}

fn check_what_a_slow_body_takes(store: &str) {
    let model = ModelServer::start();
    let service = start_with(&model, &format!("{store}{KEYED}"));
    let taken = || ["requests", "slots", "total"].map(|rule| charged_by(&service, rule));
    let body = chat("m").to_string();
    let mut first = send_beginning(&service, &body);
    wait_until("the slot is taken", || taken() == [1, 1, 0]);
    let mut second = send_beginning(&service, &body);
    let answer = second.read_answer().unwrap();
    assert_eq!(answer.status, 429, "{answer:?}");
    let problem = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(problem.contains("slots/"), "{problem}");
    // The call is charged once.
    first.send(&body[1..]);
    assert_eq!(first.read_answer().unwrap().status, 200);
    wait_until("the slot is free", || taken() == [1, 0, TOTAL]);

    // What is never complete, or cannot be counted, returns what it took.
    let left = send_beginning(&service, &body);
    wait_until("the slot is taken", || taken() == [2, 1, TOTAL]);
    drop(left);
    wait_until("the slot is free", || taken() == [1, 0, TOTAL]);
    let mut uncountable = send_beginning(&service, "[1]");
    wait_until("the slot is taken", || taken() == [2, 1, TOTAL]);
    uncountable.send("1]");
    assert_eq!(uncountable.read_answer().unwrap().status, 400);
    wait_until("the slot is free", || taken() == [1, 0, TOTAL]);
    // Each call was recorded once.
    let metrics = Metrics::of(&service);
    let decisions = |rule: &str, outcome: &str| {
        metrics.get(&format!(
            "fluxgate_decisions_total{{rule_set=\"s\",rule=\"{rule}\",outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!(decisions("slots", "allowed"), 1);
    assert_eq!(decisions("slots", "denied"), 1);
}

/// A rule that charges denied requests, and one that forbids some of them.
const ALWAYS: &str = r#"
      - { id: late, scope: global, algorithm: fixed_window, charge: always, match: { path: ["/late/**"] }, bands: [ { capacity: 9, window: 30d } ] }
      - { id: blocked, action: deny, match: { path: ["/late/blocked/**"] } }
"#;

#[test]
fn only_a_rule_that_matches_and_always_charges_waits_for_the_body() {
    let model = ModelServer::start();
    let service = start_with(&model, &format!("{}{ALWAYS}", KEYED.trim_end()));
    let headers = "Content-Length: 2\r\n";
    assert_eq!(
        send_head(&service, headers).read_answer().unwrap().status,
        429
    );
    let late = |path: &str| {
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!(
            "POST /late{path}{CHAT} HTTP/1.1\r\nHost: a\r\n{headers}\r\n"
        ));
        client
    };
    assert_eq!(late("/blocked").read_answer().unwrap().status, 403);
    let state = || service.http().get("/v1/state?rule_set=s&rule=late").body;
    assert!(state().contains("\"remaining\":9"), "{}", state());
    let mut client = late("");
    client.send("{}");
    assert_eq!(client.read_answer().unwrap().status, 429);
    assert!(state().contains("\"remaining\":8"), "{}", state());
}

#[test]
fn a_refusal_does_not_depend_on_how_the_body_arrives() {
    let model = ModelServer::start();
    let service = start_with(&model, KEYED);
    // It cannot be counted, but without a key that does not matter.
    for headers in ["", "TE: trailers\r\nConnection: TE\r\n"] {
        let mut client = send_head(&service, &format!("{headers}Content-Length: 1\r\n"));
        client.send("{");
        assert_eq!(client.read_answer().unwrap().status, 429);
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!(
            "POST {CHAT} HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: 1\r\n\r\n{{"
        ));
        assert_eq!(client.read_answer().unwrap().status, 429);
    }
}

#[test]
fn a_call_that_its_tokens_deny_after_the_body_is_charged_by_no_rule() {
    let model = ModelServer::start();
    let rules = RULES.replacen("capacity: 100000", "capacity: 100", 1);
    let service = start_with(&model, &rules);
    let mut large = chat("m");
    large["max_tokens"] = json!(90);
    let body = large.to_string();
    let headers = format!("X-API-Key: k\r\nContent-Length: {}\r\n", body.len());
    let mut client = send_head(&service, &headers);
    client.send(&body[..10]);
    client.send(&body[10..]);
    assert_eq!(client.read_answer().unwrap().status, 429);
    assert_eq!(charged(&service), [0; 4]);
    assert!(model.requests().is_empty());
}

#[test]
fn a_call_that_may_wait_is_read_waits_and_is_charged_once() {
    let model = ModelServer::start();
    let paced = "      - { id: paced, scope: per_api_key, on_exceed: wait, max_wait: 5s, \
                 bands: [ { capacity: 1, window: 500ms } ] }\n";
    let service = start_with(&model, &format!("{RULES}{paced}"));
    assert_eq!(call(&service, CHAT, &chat("m")).status, 200);
    let began = now();
    let body = chat("m").to_string();
    let headers = format!("X-API-Key: k\r\nContent-Length: {}\r\n", body.len());
    let mut clients = [(); 2].map(|()| send_head(&service, &headers));
    for client in &mut clients {
        client.send(&body);
    }
    for client in &mut clients {
        assert_eq!(client.read_answer().unwrap().status, 200);
    }
    assert!(began.elapsed() >= Duration::from_millis(500), "no wait");
    assert_eq!(charged(&service), REPORTED.map(|number| 3 * number));
}
