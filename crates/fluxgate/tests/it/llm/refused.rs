//! Calls that are not forwarded.

use fluxgate_testkit::RawClient;

use super::*;

#[test]
fn a_call_that_cannot_be_counted_is_a_bad_request_and_free() {
    let model = ModelServer::start();
    let service = start(&model);
    let mut http = Http::new(service.address("gateway"));
    for body in [
        "",
        "{",
        "[]",
        r#"{"messages":[],"max_tokens":-1}"#,
        r#"{"messages":[],"max_tokens":1,"max_tokens":2}"#,
        r#"{"messages":"x"}"#,
        r#"{"messages":[],"Max_Tokens":9}"#,
    ] {
        let answer = http.request("POST", CHAT, &[("X-API-Key", "k")], body);
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(answer.header("connection"), None, "{answer:?}");
    }
    let encoded = [("X-API-Key", "k"), ("Content-Encoding", "gzip")];
    let answer = http.request("POST", CHAT, &encoded, "{}");
    assert_eq!(answer.status, 415, "{answer:?}");
    assert!(model.requests().is_empty());
    assert_eq!(charged(&service), [0; 4]);
}

#[test]
fn a_call_over_the_limit_is_denied_and_free() {
    let model = ModelServer::start();
    let rules = RULES.replacen("capacity: 100000", "capacity: 100", 1);
    let service = start_with(&model, &rules);
    let mut large = chat("m");
    large["max_tokens"] = json!(90);
    let answer = call(&service, CHAT, &large);
    assert_eq!(answer.status, 429, "{answer:?}");
    assert!(answer.body.contains("total/b0"), "{answer:?}");
    assert_eq!(charged(&service), [0; 4]);
    assert!(model.requests().is_empty());
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let model = ModelServer::start();
    let url = model.url();
    let config = format!(
        "filters: {{ main: {{ rule_set: s }} }}\n\
         gateway:\n  limits: {{ body_bytes: 1000 }}\n  routes:\n    - {{ id: llm, \
         upstreams: [\"{url}\"], filters: [main], llm: {{ rules: main }} }}\n{RULES}"
    );
    let service = Service::start(&["gateway"], &config);
    let mut client = RawClient::connect(service.address("gateway"));
    let part = "x".repeat(1001);
    client.send(format!(
        "POST {CHAT} HTTP/1.1\r\nHost: a\r\nX-API-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n\
         3e9\r\n{part}\r\n0\r\n\r\n"
    ));
    assert_eq!(client.read_answer().unwrap().status, 413);
    let mut long = chat("m");
    long["messages"][0]["content"] = json!(part);
    assert_eq!(call(&service, CHAT, &long).status, 413);
    assert_eq!(charged(&service), [0; 4]);
}

#[test]
fn a_denial_by_a_later_filter_costs_no_tokens() {
    let model = ModelServer::start();
    let url = model.url();
    let config = format!(
        "filters: {{ main: {{ rule_set: s }}, last: {{ rule_set: none-left }} }}\n\
         gateway:\n  routes:\n    - {{ id: llm, upstreams: [\"{url}\"], filters: [main, last], \
         llm: {{ rules: main }} }}\n{RULES}  none-left:\n    rules:\n      - {{ id: r, \
         scope: global, cost: 2, bands: [ {{ capacity: 1, window: 1h }} ] }}\n"
    );
    let service = Service::start(&["gateway"], &config);
    assert_eq!(call(&service, CHAT, &chat("m")).status, 429);
    assert_eq!(charged(&service), [0, 0, 0, 1]);
    assert!(model.requests().is_empty());
}
