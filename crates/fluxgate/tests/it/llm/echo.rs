//! Calls to the built-in upstream, which is no model.

use fluxgate_testkit::RawClient;

use super::*;

#[test]
fn the_echo_upstream_costs_no_tokens() {
    let config = format!(
        "filters: {{ main: {{ rule_set: s }} }}\n\
         gateway:\n  routes:\n    - {{ id: llm, upstreams: [echo], filters: [main], \
         llm: {{ rules: main }} }}\n{RULES}"
    );
    let service = Service::start(&["gateway"], &config);
    let mut calls = 0;
    for body in [chat("m"), streamed_chat("m")] {
        // Hyper reads requests with a header that concerns the connection.
        for more in ["", "TE: trailers\r\nConnection: TE\r\n"] {
            let body = body.to_string();
            let mut client = RawClient::connect(service.address("gateway"));
            client.send(format!(
                "POST {CHAT} HTTP/1.1\r\nHost: a\r\nX-API-Key: k\r\n{more}Content-Length: {}\r\n\r\n{body}",
                body.len()
            ));
            let answer = client.read_answer().unwrap();
            assert_eq!(answer.status, 200, "{answer:?}");
            calls += 1;
            assert_eq!(charged(&service), [0, 0, 0, calls], "{more:?}");
        }
    }
}
