//! The memory for bodies of calls.

use super::http2_client::Http2Client;
use super::*;
use crate::gateway_faults::memory::{peak_kib, used_kib};

const MIB: i64 = 1 << 20;

/// Tokens of everyone together, so that no key is needed.
const SHARED: &str = r#"
rule_sets:
  s:
    rules:
      - { id: total, scope: global, algorithm: fixed_window, cost: "llm:total_tokens", bands: [ { capacity: 1000000000, window: 300d } ] }
"#;

fn start_with_buffer(model: &ModelServer, buffer: &str, rules: &str) -> Service {
    start_with_settings(model, &format!("llm: {{ buffer: {buffer} }}"), rules)
}

/// Starts a gateway with these lines of the section `gateway`, each indented by two spaces.
fn start_with_settings(model: &ModelServer, settings: &str, rules: &str) -> Service {
    let url = model.url();
    let config = format!(
        "filters: {{ main: {{ rule_set: s }} }}\n\
         gateway:\n  {settings}\n  routes:\n    - {{ id: llm, \
         upstreams: [\"{url}\"], filters: [main], llm: {{ rules: main }} }}\n{rules}"
    );
    Service::start(&["gateway"], &config)
}

#[test]
fn a_hundred_bodies_without_credentials_take_no_memory() {
    let model = ModelServer::start();
    let rules = SHARED.replace("scope: global", "scope: per_api_key, on_missing_key: deny");
    let service = start_with(&model, &rules);
    let most = used_kib(&service) + 64 * 1024;
    let mut client = Http2Client::connect(&service);
    for _ in 0..100 {
        client.begin(CHAT, &[], 31 * MIB);
    }
    let answers = client.send_bodies(b' ', || {
        let peak = peak_kib(&service);
        assert!(peak <= most, "{peak} KiB");
    });
    let refused = answers.iter().filter(|answer| answer.contains("429"));
    assert_eq!(refused.count(), 100, "{answers:?}");
    assert_eq!(call(&service, CHAT, &chat("m")).status, 200);
}

#[test]
fn all_bodies_together_take_no_more_than_the_buffer() {
    let model = ModelServer::start();
    let service = start_with_buffer(&model, "16MiB", SHARED);
    // Beside the buffer: the windows of 40 streams, and what the allocator keeps for a while. All
    // bodies together have 360 MiB.
    let most = used_kib(&service) + (16 + 112) * 1024;
    let mut client = Http2Client::connect(&service);
    for _ in 0..40 {
        client.begin(CHAT, &[], 9 * MIB);
    }
    let mut small = 0;
    let answers = client.send_bodies(b' ', || {
        let peak = peak_kib(&service);
        assert!(peak <= most, "{peak} KiB");
        // A small call is answered at once, whether or not there is room for it.
        if small < 3 {
            small += 1;
            let status = call(&service, CHAT, &chat("m")).status;
            assert!([200, 503].contains(&status), "{status}");
        }
    });
    let count = |status: &str| {
        let answers = answers.iter().filter(|answer| answer.contains(status));
        answers.count()
    };
    // White space is no JSON. How many bodies end before the next one begins is a matter of
    // time, but they cannot all fit.
    let (refused, complete) = (count("503"), count("400"));
    assert_eq!(refused + complete, 40, "{answers:?}");
    assert!(refused > 0, "{answers:?}");
    assert_eq!(call(&service, CHAT, &chat("m")).status, 200);
}

#[test]
fn a_body_over_the_buffer_is_refused_for_now_on_every_transport() {
    let model = ModelServer::start();
    let service = start_with_buffer(&model, "1KiB", SHARED);
    let mut large = chat("m");
    large["messages"][0]["content"] = json!("x".repeat(1024));
    let large = large.to_string();
    let length = large.len();
    for headers in [
        format!("Content-Length: {length}\r\n\r\n{large}"),
        format!("TE: trailers\r\nConnection: TE\r\nContent-Length: {length}\r\n\r\n{large}"),
        format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{large}\r\n0\r\n\r\n"),
    ] {
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\n{headers}"));
        let answer = client.read_answer().unwrap();
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.values("retry-after"), ["1"]);
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(body.contains("too many bodies"), "{body}");
        // Nothing is kept of it.
        assert_eq!(call(&service, CHAT, &chat("m")).status, 200);
    }
    let path = "/v1/state?rule_set=s&rule=total";
    let state: Value = serde_json::from_str(&service.http().get(path).body).unwrap();
    let left = state["bands"][0]["remaining"].as_u64();
    assert_eq!(left, Some(1_000_000_000 - 3 * TOTAL));
}

/// A client that sends a part of its body now and then is never idle.
#[test]
fn a_body_that_takes_too_long_gives_its_memory_back() {
    let model = ModelServer::start();
    let settings = "llm: { buffer: 1KiB }\n  timeouts: { idle: 1h, request: 500ms }";
    let service = start_with_settings(&model, settings, SHARED);
    let body = " ".repeat(1000);
    for framing in [
        "Content-Length: 1001\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3e9\r\n",
    ] {
        let mut slow = RawClient::connect(service.address("gateway"));
        slow.send(format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\n{framing}"));
        slow.send(&body);
        let answer = slow.read_answer().unwrap();
        assert_eq!(answer.status, 408, "{answer:?}");
        assert_eq!(call(&service, CHAT, &chat("m")).status, 200);
    }
    let mut client = Http2Client::connect(&service);
    client.begin(CHAT, &[], 1001);
    let answers = client.read_answers();
    assert!(answers[0].contains("408"), "{answers:?}");
}
