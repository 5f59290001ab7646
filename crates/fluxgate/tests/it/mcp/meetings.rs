//! Where calls meet other features.

use std::time::Duration;

use fluxgate_testkit::{now, wait_until};

use super::*;

/// Rules of one kind, which stand in place of those of [`RULES`].
fn rules(list: &[&str]) -> String {
    let rules: Vec<_> = list
        .iter()
        .map(|rule| format!("      - {{ {rule} }}\n"))
        .collect();
    format!("\nrule_sets:\n  s:\n    rules:\n{}", rules.concat())
}

const SLOTS: &str = "id: slots, key: [\"mcp:name\"], on_missing_key: skip, algorithm: concurrency, bands: [ { capacity: 2 } ]";

/// A server that answers when it is told to.
fn held_upstream() -> RawUpstream {
    RawUpstream::start(|connection| {
        while let Some(request) = connection.read_request() {
            if String::from_utf8_lossy(&request.body).contains("slow") {
                connection.hold();
            }
            connection.send(OK);
        }
    })
}

#[test]
fn slots_are_held_until_the_answer_has_ended_those_of_batches_too() {
    let upstream = held_upstream();
    let service = start_with(&upstream, "", &rules(&[SLOTS]));
    let free = |tool: &str| left(&service, "slots", &format!("identity={tool}"));
    for body in [tool("slow", 1), json!([tool("slow", 1), tool("other", 2)])] {
        for transport in TRANSPORTS {
            let mut client = RawClient::connect(service.address("gateway"));
            client.send(request(transport, "", &body.to_string()));
            wait_until("the slot is taken", || free("slow") == 1);
            assert_eq!(free("other"), if body.is_array() { 1 } else { 2 });
            // Two more do not fit, and take nothing.
            let two = json!([tool("slow", 1), tool("slow", 2)]);
            assert_eq!(post(&service, &two).status, 429);
            assert_eq!(free("slow"), 1);
            drop(client);
            wait_until("the slots are free", || {
                free("slow") == 2 && free("other") == 2
            });
        }
    }
}

#[test]
fn a_call_waits_and_a_batch_does_not() {
    let upstream = RawUpstream::answering(OK);
    let rule = |tool: &str, window: &str| {
        format!(
            "id: {tool}, key: [\"mcp:name\"], match: {{ attributes: {{ \"mcp:name\": {tool} }} }}, \
             on_exceed: wait, max_wait: 1h, bands: [ {{ capacity: 1, window: {window} }} ]"
        )
    };
    let rules = rules(&[&rule("slow", "1h"), &rule("quick", "500ms")]);
    let service = start_with(&upstream, "", &rules);
    let began = now();
    // A batch of one is one call.
    for message in [
        tool("quick", 1),
        tool("quick", 2),
        json!([tool("quick", 3)]),
    ] {
        assert_eq!(post(&service, &message).status, 200);
    }
    assert!(began.elapsed() >= Duration::from_millis(900), "no wait");
    assert_eq!(post(&service, &tool("slow", 1)).status, 200);
    let refused = post(&service, &json!([tool("other", 1), tool("slow", 2)]));
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(json_of(&refused)[0]["error"]["data"]["rule"], "slow");
    assert_eq!(upstream.requests().len(), 4);
}

#[test]
fn shadow_rules_refuse_no_call_and_count_each_of_a_batch() {
    let upstream = RawUpstream::answering(OK);
    let shadow = "id: shadow, mode: shadow, key: [\"mcp:name\"], on_missing_key: skip, algorithm: fixed_window, bands: [ { capacity: 2, window: 300d } ]";
    let forbidden =
        "id: forbidden, mode: shadow, action: deny, match: { attributes: { \"mcp:name\": a } }";
    let service = start_with(&upstream, "", &rules(&[shadow, forbidden]));
    let batch = json!([tool("a", 1), tool("b", 2), tool("a", 3)]);
    assert_eq!(post(&service, &batch).status, 200);
    assert_eq!(left(&service, "shadow", "identity=a"), 0);
    assert_eq!(left(&service, "shadow", "identity=b"), 1);
    assert_eq!(post(&service, &tool("a", 4)).status, 200);
    assert_eq!(post(&service, &batch).status, 200);
}

#[test]
fn an_exempt_call_does_not_exempt_its_batch() {
    let upstream = RawUpstream::answering(OK);
    let exempt = "id: free, action: allow, match: { attributes: { \"mcp:method\": [ping] } }";
    let calls = "id: calls, scope: per_user, algorithm: fixed_window, bands: [ { capacity: 2, window: 300d } ]";
    let service = start_with(&upstream, "", &rules(&[exempt, calls]));
    let ping = json!({ "id": 1, "method": "ping" });
    assert_eq!(
        post(&service, &json!([ping, ping, ping, tool("a", 2)])).status,
        200
    );
    assert_eq!(left(&service, "calls", "identity=ann"), 1);
    let refused = post(&service, &json!([ping, tool("a", 2), tool("a", 3)]));
    assert_eq!(refused.status, 429);
    assert_eq!(left(&service, "calls", "identity=ann"), 1);
}

#[test]
fn pages_of_other_sites_can_read_refusals() {
    let upstream = RawUpstream::answering(OK);
    let cors =
        ", cors: { origins: [\"https://app.example\"], methods: [POST], headers: [Content-Type] }";
    let service = start_with(&upstream, cors, RULES);
    let mut client = RawClient::connect(service.address("gateway"));
    client.send(
        "OPTIONS /mcp HTTP/1.1\r\nHost: a\r\nOrigin: https://app.example\r\n\
         Access-Control-Request-Method: POST\r\n\r\n",
    );
    assert_eq!(client.read_answer().unwrap().status, 204);
    for transport in TRANSPORTS {
        let headers = "Origin: https://app.example\r\n";
        let refused = post_with(&service, transport, headers, &tool("shell", 1).to_string());
        assert_eq!(refused.status, 403);
        assert_eq!(
            refused.values("access-control-allow-origin"),
            ["https://app.example"]
        );
        assert_eq!(json_of(&refused)["id"], 1);
    }
}

#[test]
fn a_call_that_is_tried_again_is_charged_once() {
    let upstream = RawUpstream::start(|connection| {
        let index = connection.index();
        while connection.read_request().is_some() {
            if index == 0 {
                connection
                    .send("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                return;
            }
            connection.send(OK);
        }
    });
    let retry = ", retry: { attempts: 3, on: [\"503\"], methods: [POST], budget: 100% }";
    let service = start_with(&upstream, retry, RULES);
    let body = tool("echo", 1).to_string();
    assert_eq!(post_with(&service, Transport::Hyper, "", &body).status, 200);
    let bodies: Vec<_> = upstream.requests().into_iter().map(|it| it.body).collect();
    assert_eq!(bodies, [body.as_bytes(), body.as_bytes()]);
    assert_eq!(tool_left(&service, "echo"), (2, 9));
}

#[test]
fn the_access_log_names_the_rule_that_refused_a_call() {
    let upstream = RawUpstream::answering(OK);
    let config = format!(
        "filters: {{ main: {{ rule_set: s }} }}\n\
         gateway:\n  access_log: {{ file: access.log }}\n  routes:\n    - {{ id: mcp, upstreams: [\"http://{}\"], \
         filters: [main], mcp: {{ filter: main }} }}\n{RULES}",
        upstream.address()
    );
    let service = Service::start(&["gateway"], &config);
    let batch = json!([tool("a", 1), tool("shell", 2)]);
    let lines = || {
        let log = std::fs::read_to_string(service.dir.path("access.log")).unwrap_or_default();
        let lines = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.collect::<Vec<_>>()
    };
    assert_eq!(post(&service, &batch).status, 403);
    // Connections are not logged in any order.
    wait_until("the first is logged", || lines().len() == 1);
    assert_eq!(post(&service, &json!({ "id": 1 })).status, 400);
    wait_until("both are logged", || lines().len() == 2);
    let lines = lines();
    assert_eq!(lines[0]["rule"], "no-shell");
    assert_eq!(lines[0]["outcome"], "forbidden");
    assert_eq!(lines[0]["bytes_in"], batch.to_string().len());
    assert_eq!(lines[1]["status"], 400);
    assert!(
        lines[1]["error"]
            .as_str()
            .unwrap()
            .contains("a message must have"),
        "{}",
        lines[1]
    );
}

#[test]
fn a_later_filter_refuses_in_json_rpc_too() {
    let upstream = RawUpstream::answering(OK);
    let config = format!(
        "filters: {{ main: {{ rule_set: s }}, last: {{ rule_set: none-left }} }}\n\
         gateway:\n  routes:\n    - {{ id: mcp, upstreams: [\"http://{}\"], filters: [main, last], mcp: {{ filter: main }} }}\n\
         {RULES}  none-left:\n    rules:\n      - {{ id: r, scope: global, cost: 2, bands: [ {{ capacity: 1, window: 1h }} ] }}\n",
        upstream.address()
    );
    let service = Service::start(&["gateway"], &config);
    let refused = post(&service, &tool("echo", "x"));
    assert_eq!(refused.status, 429);
    let error = json_of(&refused);
    assert_eq!(
        (&error["id"], &error["error"]["data"]["rule"]),
        (&json!("x"), &json!("r"))
    );
    assert_eq!(error["error"]["data"]["retry_after_ms"], Value::Null);
}
