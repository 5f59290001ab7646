//! Calls that wait for their tokens.

use std::time::Duration;

use fluxgate_testkit::{now, wait_until};

use super::*;
use crate::service::telemetry::Metrics;

#[test]
fn a_client_that_leaves_gives_up_its_place() {
    for is_fast in [true, false] {
        let model = ModelServer::start();
        // A call reserves 64 tokens, which take an hour.
        let paced = r#"      - { id: paced, scope: per_api_key, cost: "llm:total_tokens", on_exceed: wait, max_wait: 2h, bands: [ { capacity: 64, window: 1h } ] }"#;
        let service = start_with(&model, &format!("{RULES}{paced}\n"));
        let held = read_until(&service, &streamed_chat("hold=2"), is_fast, "üß");
        let waits = || Metrics::of(&service).get("fluxgate_waiting");
        let waiting = read_until(&service, &chat("m"), is_fast, "");
        wait_until("the second call waits", || waits() == 1);
        let reserved = PROMPT_BOUND + 50;
        assert_eq!(charged_by(&service, "total"), 2 * reserved);
        drop(waiting);
        wait_until("its place is free", || {
            waits() == 0 && charged_by(&service, "total") == reserved
        });
        assert_eq!(charged_by(&service, "requests"), 1);
        drop(held);
        wait_until("the first is settled", || {
            charged_by(&service, "total") == PROMPT_BOUND + 2
        });
        assert_eq!(model.requests().len(), 1);
    }
}

#[test]
fn a_call_waits_for_its_tokens_and_is_settled() {
    let model = ModelServer::start();
    // A call reserves 64 tokens. After the first, the second lacks 28, which take 560 ms.
    let paced = r#"      - { id: paced, scope: per_api_key, cost: "llm:total_tokens", on_exceed: wait, max_wait: 5s, bands: [ { capacity: 100, window: 2s } ] }"#;
    let service = start_with(&model, &format!("{RULES}{paced}\n"));
    let began = now();
    let body = streamed_chat("wait=1").to_string();
    let mut first = Http::new(service.address("gateway"));
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: a\r\nX-API-Key: k\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    first.send_raw((head + &body).as_bytes()).unwrap();
    wait_until("the first call is forwarded", || {
        model.requests().len() == 1
    });

    let answer = call(&service, CHAT, &chat("m"));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(began.elapsed() >= Duration::from_millis(560), "no wait");
    let reserved = [PROMPT_BOUND + 50, PROMPT_BOUND, 50, 1];
    let expected = std::array::from_fn(|index| REPORTED[index] + reserved[index]);
    assert_eq!(charged(&service), expected);

    model.release();
    assert_eq!(first.read_answer(false).unwrap().status, 200);
    assert_eq!(charged(&service), REPORTED.map(|number| number * 2));
}
