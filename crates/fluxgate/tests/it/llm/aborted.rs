//! Calls that end early are settled with what was seen.

use fluxgate_testkit::{RawUpstream, wait_until};

use super::*;

/// The bound of the prompt, and one token for each of two events, which have six bytes.
const SEEN: [u64; 4] = [PROMPT_BOUND + 2, PROMPT_BOUND, 2, 1];

#[test]
fn a_client_that_disconnects_pays_for_what_it_has_seen() {
    for is_fast in [true, false] {
        let model = ModelServer::start();
        let service = start(&model);
        let stream = read_until(&service, &streamed_chat("hold=2"), is_fast, "üß");
        drop(stream);
        wait_until("the call is settled", || charged(&service) == SEEN);
    }
}

#[test]
fn a_client_that_does_not_wait_pays_for_the_prompt() {
    for is_fast in [true, false] {
        let model = ModelServer::start();
        let service = start(&model);
        let stream = read_until(&service, &chat("silent"), is_fast, "");
        wait_until("the call is forwarded", || model.requests().len() == 1);
        drop(stream);
        let prompt = [PROMPT_BOUND, PROMPT_BOUND, 0, 1];
        wait_until("the call is settled", || charged(&service) == prompt);
    }
}

#[test]
fn a_client_that_leaves_pays_what_it_reserved_if_the_route_says_so() {
    let reserved = [PROMPT_BOUND + 50, PROMPT_BOUND, 50, 1];
    let start = |model: &ModelServer| {
        start_route(&model.url(), "{ rules: main, on_abort: reserved }", RULES)
    };
    for is_fast in [true, false] {
        // Within the answer, before it, and after more than was reserved.
        for (name, seen, expected) in [
            ("hold=2", "üß", reserved),
            ("silent", "", reserved),
            ("hold=2 short", "üß", [PROMPT_BOUND + 2, PROMPT_BOUND, 2, 1]),
        ] {
            let model = ModelServer::start();
            let service = start(&model);
            let mut chat = streamed_chat(name);
            if name.ends_with("short") {
                chat["max_tokens"] = json!(1);
            }
            let stream = read_until(&service, &chat, is_fast, seen);
            wait_until("the call is forwarded", || model.requests().len() == 1);
            drop(stream);
            wait_until(name, || charged(&service) == expected);
        }
        // Here the client has not left.
        let model = ModelServer::start();
        let service = start(&model);
        assert_eq!(call(&service, CHAT, &streamed_chat("m")).status, 200);
        assert_eq!(charged(&service), REPORTED);
        let body = streamed_chat("cut=2").to_string();
        let mut client = Http::new(service.address("gateway"));
        let answer = client.try_request("POST", CHAT, &[("X-API-Key", "k")], &body);
        assert!(answer.is_err(), "{answer:?}");
        let both = std::array::from_fn(|index| REPORTED[index] + SEEN[index]);
        wait_until("the call is settled", || charged(&service) == both);
    }
}

#[test]
fn an_answer_that_the_upstream_cuts_off_counts_as_far_as_it_was_seen() {
    for end in ["cut=2", "break=2", "cut=2 sized"] {
        let model = ModelServer::start();
        let service = start(&model);
        let body = streamed_chat(end).to_string();
        let mut client = Http::new(service.address("gateway"));
        let answer = client.try_request("POST", CHAT, &[("X-API-Key", "k")], &body);
        assert!(answer.is_err(), "{answer:?}");
        // A reset may overtake what was sent before.
        wait_until("the call is settled", || {
            let now = charged(&service);
            now == SEEN || (end == "break=2" && now[0] <= SEEN[0])
        });
    }
}

#[test]
fn errors_cost_no_tokens() {
    for (status, is_streamed) in [(400, false), (429, true), (503, true)] {
        let model = ModelServer::start();
        let service = start(&model);
        let mut chat = chat(&format!("status={status}"));
        chat["stream"] = json!(is_streamed);
        assert_eq!(call(&service, CHAT, &chat).status, status);
        assert_eq!(charged(&service), [0, 0, 0, 1]);
    }
}

#[test]
fn an_upstream_that_is_down_costs_no_tokens() {
    // Reserved, so that no other test listens there.
    let port = fluxgate_testkit::ports::free();
    let service = start_at(&format!("http://{}", port.addr()), RULES);
    assert_eq!(call(&service, CHAT, &chat("m")).status, 502);
    assert_eq!(charged(&service), [0, 0, 0, 1]);
}

/// The upstream may have worked on the call, so it costs what an abandoned one does.
#[test]
fn a_call_that_was_sent_and_gets_no_answer_is_charged_as_on_abort_says() {
    let prompt = [PROMPT_BOUND, PROMPT_BOUND, 0, 1];
    let reserved = [PROMPT_BOUND + 50, PROMPT_BOUND, 50, 1];
    // One never answers, and one closes the connection.
    let closing = RawUpstream::start(|connection| {
        let _ = connection.read_request();
    });
    let model = ModelServer::start();
    for (url, status) in [
        (model.url(), 504),
        (format!("http://{}", closing.address()), 502),
    ] {
        for (on_abort, expected) in [("seen", prompt), ("reserved", reserved)] {
            for more in ["", "TE: trailers\r\nConnection: TE\r\n"] {
                let config = format!(
                    "filters: {{ main: {{ rule_set: s }} }}\n\
                     gateway:\n  timeouts: {{ request: 500ms }}\n  routes:\n    - {{ id: llm, \
                     upstreams: [\"{url}\"], filters: [main], \
                     llm: {{ rules: main, on_abort: {on_abort} }} }}\n{RULES}"
                );
                let service = Service::start(&["gateway"], &config);
                let body = chat("silent").to_string();
                let mut client = RawClient::connect(service.address("gateway"));
                client.send(format!(
                    "POST {CHAT} HTTP/1.1\r\nHost: a\r\nX-API-Key: k\r\n{more}\
                     Content-Length: {}\r\n\r\n{body}",
                    body.len()
                ));
                assert_eq!(client.read_answer().unwrap().status, status);
                wait_until("the call is settled", || charged(&service) == expected);
            }
        }
    }
}
