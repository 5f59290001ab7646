//! Bodies that cannot be counted, and bodies that are no calls.

use super::*;

#[test]
fn a_body_that_servers_read_in_different_ways_is_refused_and_free() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    for transport in TRANSPORTS {
        for body in [
            "{",
            "\u{feff}{\"method\":\"ping\"}",
            "[]",
            r#"[[{"method":"ping"}]]"#,
            r#"{"method":"ping","method":"tools/call","params":{"name":"shell"}}"#,
            r#"{"method":"ping","Method":"tools/call","params":{"name":"shell"}}"#,
            r#"{"method":"tools/call","params":{"name":"echo","n\u0061me":"shell"}}"#,
            r#"{"method":"tools/call","params":["shell"]}"#,
            r#"{"method":"tools/call"}"#,
            r#"{"method":"TOOLS/CALL","params":{"name":"shell"}}"#,
            r#"{"method":"ping"}{"method":"tools/call","params":{"name":"shell"}}"#,
            r#"{"id":1}"#,
        ] {
            let answer = post_with(&service, transport, "", body);
            assert_eq!(answer.status, 400, "{transport:?} {body}: {answer:?}");
            assert_eq!(answer.values("content-type"), ["application/problem+json"]);
            assert_eq!(answer.values("connection"), [""; 0], "{answer:?}");
        }
    }
    assert!(upstream.requests().is_empty());
    assert_eq!(left(&service, "calls", "identity=ann"), 10);
}

#[test]
fn a_body_that_its_headers_make_unreadable_is_refused() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    let body = tool("echo", 1).to_string();
    for transport in TRANSPORTS {
        for headers in ["Content-Encoding: gzip\r\n", "Content-Type: text/plain\r\n"] {
            let answer = post_with(&service, transport, headers, &body);
            assert_eq!(answer.status, 415, "{transport:?} {headers}: {answer:?}");
        }
    }
    for content_type in [
        "text/plain",
        "application/json; charset=utf-16",
        "multipart/form-data; boundary=a",
    ] {
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!(
            "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        assert_eq!(client.read_answer().unwrap().status, 415, "{content_type}");
    }
    assert!(upstream.requests().is_empty());
}

#[test]
fn a_body_may_have_one_mebibyte() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    let sized = |size: usize| {
        let empty = r#"{"method":"tools/call","params":{"name":"echo","arguments":""}}"#;
        let filling = "x".repeat(size - empty.len());
        empty.replace(r#""""#, &format!("\"{filling}\""))
    };
    for transport in TRANSPORTS {
        let most = sized(1024 * 1024);
        assert_eq!(most.len(), 1024 * 1024);
        assert_eq!(post_with(&service, transport, "", &most).status, 200);
        // Its length tells that it is too large.
        let head = request(
            transport,
            "Mcp-Method: tools/call\r\nMcp-Name: echo\r\n",
            "",
        );
        let head = head.replace("Content-Length: 0", "Content-Length: 1048577");
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(head);
        assert_eq!(client.read_answer().unwrap().status, 413, "{transport:?}");
    }
    let mut client = RawClient::connect(service.address("gateway"));
    let body = sized(1024 * 1024 + 1);
    client.send(format!(
        "POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n",
        body.len()
    ));
    client.send(&body[..body.len() / 2]);
    client.send(&body[body.len() / 2..]);
    assert_eq!(client.read_answer().unwrap().status, 413);
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn streams_of_events_pass_as_they_are() {
    let events =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let upstream = RawUpstream::start(move |connection| {
        while connection.read_request().is_some() {
            connection.send(format!("{events}6\r\n: one\n\r\n"));
            connection.pause(std::time::Duration::from_millis(50));
            connection.send("7\r\ndata: 2\r\n0\r\n\r\n");
        }
    });
    let service = start(&upstream);
    for transport in TRANSPORTS {
        let answer = post_with(
            &service,
            transport,
            "Accept: text/event-stream\r\n",
            &tool("echo", 1).to_string(),
        );
        assert_eq!(answer.status, 200);
        assert_eq!(answer.values("content-type"), ["text/event-stream"]);
        assert_eq!(String::from_utf8_lossy(&answer.body), ": one\ndata: 2");
    }
    let mut client = RawClient::connect(service.address("gateway"));
    client.send(
        "GET /mcp HTTP/1.1\r\nHost: a\r\nX-User-Id: ann\r\nAccept: text/event-stream\r\n\r\n",
    );
    let answer = client.read_answer().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.body), ": one\ndata: 2");
    // It is a request like any other.
    assert_eq!(left(&service, "calls", "identity=ann"), 7);
}

#[test]
fn requests_without_a_body_are_no_calls() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    for method in ["GET", "DELETE", "OPTIONS", "POST"] {
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!(
            "{method} /mcp HTTP/1.1\r\nHost: a\r\nX-User-Id: ann\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!(client.read_answer().unwrap().status, 200, "{method}");
    }
    assert_eq!(left(&service, "calls", "identity=ann"), 6);
    // With one, they are read like a POST.
    let mut client = RawClient::connect(service.address("gateway"));
    let body = tool("shell", 1).to_string();
    client.send(format!(
        "GET /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(client.read_answer().unwrap().status, 403);
}

#[test]
fn a_websocket_could_carry_calls_and_is_not_upgraded() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    let mut client = RawClient::connect(service.address("gateway"));
    client.send(
        "GET /mcp HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    );
    assert_eq!(client.read_answer().unwrap().status, 200);
    let requests = upstream.requests();
    assert_eq!(requests[0].values("upgrade"), [""; 0]);
}

/// Sends the head of a call, whose body does not follow.
fn send_head(service: &Service, headers: &str) -> RawClient {
    let mut client = RawClient::connect(service.address("gateway"));
    client.send(format!(
        "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{headers}Content-Length: 1000\r\n\r\n"
    ));
    client
}

/// A user may call one tool once, and make two calls in all.
const FEW: &str = r#"
rule_sets:
  s:
    rules:
      - { id: no-shell, action: deny, match: { attributes: { "mcp:name": [shell] } } }
      - { id: per-tool, key: [user, "mcp:name"], on_missing_key: skip, algorithm: fixed_window, bands: [ { capacity: 1, window: 300d } ] }
      - { id: calls, scope: per_user, on_missing_key: deny, algorithm: fixed_window, bands: [ { capacity: 2, window: 300d } ] }
"#;

#[test]
fn what_needs_no_body_is_decided_before_it_arrives() {
    let upstream = RawUpstream::answering(OK);
    let service = start_with(&upstream, "", FEW);
    let status = |headers: &str| {
        let answer = send_head(&service, headers).read_answer().unwrap();
        let error: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(
            (&error["id"], &error["error"]["code"]),
            (&Value::Null, &json!(-32000))
        );
        (
            answer.status,
            error["error"]["data"]["rule"].as_str().unwrap().to_owned(),
        )
    };
    let echo = "X-User-Id: ann\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n";
    let shell = "X-User-Id: ann\r\nMcp-Method: tools/call\r\nMcp-Name: shell\r\n";
    assert_eq!(status(""), (429, "calls".to_owned()));
    assert_eq!(status(shell), (403, "no-shell".to_owned()));
    assert_eq!(post(&service, &tool("echo", 1)).status, 200);
    assert_eq!(status(echo), (429, "per-tool".to_owned()));
    assert_eq!(post(&service, &tool("other", 1)).status, 200);
    assert_eq!(status("X-User-Id: ann\r\n"), (429, "calls".to_owned()));
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn what_depends_on_the_body_is_decided_when_it_has_arrived() {
    let exempt = "      - { id: free, priority: 1, action: allow, match: { attributes: { \"mcp:method\": ping } } }\n";
    for (rules, body, status) in [
        (format!("{FEW}{exempt}"), json!({ "id": 1, "method": "ping" }), 200),
        (format!("{FEW}{exempt}"), tool("echo", 1), 429),
        (FEW.replace("scope: per_user", "group: g, scope: per_user").replace("id: no-shell", "id: first, priority: 1, group: g, match: { attributes: { \"mcp:method\": ping } }, scope: global, bands: [9/d] }\n      - { id: no-shell"), json!({ "id": 1, "method": "ping" }), 200),
    ] {
        let upstream = RawUpstream::answering(OK);
        let service = start_with(&upstream, "", &rules);
        let body = body.to_string();
        // Without a user, `calls` would refuse it.
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!("POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
        client.send(&body);
        assert_eq!(client.read_answer().unwrap().status, status, "{rules}");
    }
}

#[test]
fn a_refusal_does_not_depend_on_how_the_body_arrives() {
    let upstream = RawUpstream::answering(OK);
    let service = start_with(&upstream, "", FEW);
    // It cannot be counted, but without a user that does not matter.
    for more in ["", "TE: trailers\r\nConnection: TE\r\n"] {
        let head = format!("POST /mcp HTTP/1.1\r\nHost: a\r\n{more}Content-Length: 1\r\n\r\n");
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!("{head}{{"));
        assert_eq!(client.read_answer().unwrap().status, 429);
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(&head);
        client.send("{");
        assert_eq!(client.read_answer().unwrap().status, 429);
    }
}

#[test]
fn bodies_share_the_memory_of_calls() {
    let upstream = RawUpstream::answering(OK);
    let config = format!(
        "filters: {{ main: {{ rule_set: s }} }}\n\
         gateway:\n  llm: {{ buffer: 5000 }}\n  routes:\n    - {{ id: mcp, upstreams: [\"http://{}\"], filters: [main], mcp: {{ filter: main }} }}\n{RULES}",
        upstream.address()
    );
    let service = Service::start(&["gateway"], &config);
    let long = json!({ "id": 1, "method": "ping", "params": { "x": "y".repeat(6000) } });
    for transport in TRANSPORTS {
        let full = post_with(&service, transport, "", &long.to_string());
        assert_eq!(full.status, 503, "{full:?}");
        assert_eq!(full.values("retry-after"), ["1"]);
        assert_eq!(
            post_with(&service, transport, "", &tool("echo", 1).to_string()).status,
            200
        );
    }
}
