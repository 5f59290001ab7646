//! Streams that end before their usage is known, from a server that reports 0 until then.

use fluxgate_testkit::{RawClient, RawUpstream, wait_until};

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
    let url = upstream.address();
    let config = format!(
        "filters: {{ main: {{ rule_set: s }} }}\n\
         gateway:\n  routes:\n    - {{ id: llm, upstreams: [\"http://{url}\"], filters: [main], \
         llm: {{ rules: main }} }}\n{RULES}"
    );
    Service::start(&["gateway"], &config)
}

/// Sends a call and reads until the answer contains `text`.
fn read_until(service: &Service, is_fast: bool, text: &str) -> std::net::TcpStream {
    let chat = streamed_chat("m").to_string();
    let mut client = RawClient::connect(service.address("gateway"));
    // Hyper reads requests with a header that concerns the connection.
    let more = if is_fast {
        ""
    } else {
        "TE: trailers\r\nConnection: TE\r\n"
    };
    client.send(format!(
        "POST {CHAT} HTTP/1.1\r\nHost: a\r\nX-API-Key: k\r\n{more}Content-Length: {}\r\n\r\n{chat}",
        chat.len()
    ));
    let (mut read, mut stream) = client.into_stream();
    while !String::from_utf8_lossy(&read).contains(text) {
        let mut buffer = [0; 1024];
        let count = std::io::Read::read(&mut stream, &mut buffer).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&buffer[..count]);
    }
    stream
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
        drop(read_until(&service, is_fast, "xx\""));
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
    let _client = read_until(&service, true, start);
    // What is left of an event counts by its bytes.
    wait_until_charged(&service, 60 + start.len() - "data: ".len());
}
