//! Streams that end before their usage is known, from a server that reports 0 until then.

use fluxgate_testkit::{RawUpstream, wait_until};

use super::*;

/// Two events with 30 bytes of text each.
fn events() -> String {
    let text = "x".repeat(30);
    let usage = r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#;
    let event = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}],\"usage\":{usage}}}\n\n"
    );
    event.repeat(2)
}

fn start_raw(upstream: &RawUpstream) -> Service {
    start_at(&format!("http://{}", upstream.address()), RULES)
}

/// Returns the answer with these events, without its last chunk.
fn answer(events: &str) -> String {
    let length = events.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
         {length:x}\r\n{events}\r\n"
    )
}

/// Waits until the bound of the prompt and so many bytes of text are charged.
fn wait_until_charged(service: &Service, bytes: usize) {
    let completion = bytes.div_ceil(3) as u64;
    let expected = [PROMPT_BOUND + completion, PROMPT_BOUND, completion, 1];
    wait_until("the call is settled", || charged(service) == expected);
}

#[test]
fn a_client_that_disconnects_pays_for_what_it_has_seen() {
    let upstream = RawUpstream::start(|connection| {
        if connection.read_request().is_some() {
            connection.send(answer(&events()));
            connection.hold();
        }
    });
    for is_fast in [true, false] {
        let service = start_raw(&upstream);
        drop(read_until(&service, &streamed_chat("m"), is_fast, "xx\""));
        wait_until_charged(&service, 60);
    }
}

#[test]
fn what_may_be_the_usage_is_passed_on_where_the_upstream_ends() {
    let start = r#"data: {"id":"the start","#;
    let upstream = RawUpstream::start(move |connection| {
        if connection.read_request().is_some() {
            connection.send(answer(&(events() + start)));
        }
    });
    let service = start_raw(&upstream);
    let _client = read_until(&service, &streamed_chat("m"), true, start);
    // What is left of an event counts by its bytes.
    wait_until_charged(&service, 60 + start.len() - "data: ".len());
}
