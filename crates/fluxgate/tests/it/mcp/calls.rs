//! Single calls: what they count, and how they are refused.

use super::*;

#[test]
fn tools_are_counted_by_name_and_refused_in_json_rpc() {
    for transport in TRANSPORTS {
        let upstream = RawUpstream::answering(OK);
        let service = start(&upstream);
        let call =
            |name: &str, id: Value| post_with(&service, transport, "", &tool(name, id).to_string());
        for id in 1..=3 {
            let answer = call("echo", json!(id));
            assert_eq!(answer.status, 200, "{transport:?}: {answer:?}");
            assert_eq!(answer.values("x-ratelimit-limit"), ["3"]);
        }
        let refused = call("echo", json!("four"));
        assert_eq!(refused.status, 429, "{transport:?}: {refused:?}");
        let error = json_of(&refused);
        let retry = error["error"]["data"]["retry_after_ms"].as_u64();
        assert!(retry.is_some_and(|it| it > 0), "{error}");
        assert_eq!(
            error,
            json!({ "jsonrpc": "2.0", "id": "four", "error": {
                "code": -32000, "message": "The quota for these calls is used up",
                "data": { "retry_after_ms": retry, "rule": "per-tool" },
            } })
        );
        assert_eq!(refused.values("retry-after").len(), 1);
        assert_eq!(refused.values("x-ratelimit-remaining"), ["0"]);
        assert!(refused.values("ratelimit")[0].starts_with("\"per-tool/b0\";r=0"));
        assert_eq!(call("search", json!(5)).status, 200);
        assert_eq!(tool_left(&service, "echo"), (0, 6));
        assert_eq!(tool_left(&service, "search"), (2, 6));
        assert_eq!(upstream.requests().len(), 4);
    }
}

#[test]
fn a_forbidden_tool_is_refused_with_the_status_of_the_rule() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    for transport in TRANSPORTS {
        let refused = post_with(&service, transport, "", &tool("shell", 7).to_string());
        assert_eq!(refused.status, 403);
        assert_eq!(
            json_of(&refused),
            json!({ "jsonrpc": "2.0", "id": 7, "error": {
                "code": -32000, "message": "A rule forbids this call",
                "data": { "retry_after_ms": null, "rule": "no-shell" },
            } })
        );
        assert_eq!(refused.values("retry-after"), [""; 0]);
        assert_eq!(refused.values("x-ratelimit-limit"), [""; 0]);
    }
    assert!(upstream.requests().is_empty());
    assert_eq!(left(&service, "calls", "identity=ann"), 10);
}

#[test]
fn http_2_carries_the_same_calls_and_refusals() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    for _ in 0..3 {
        let (head, body) = post_http2(&service, &tool("echo", 1));
        assert!(head.starts_with("HTTP/2 200"), "{head}");
        assert_eq!(body, "ok");
    }
    let (head, body) = post_http2(&service, &tool("echo", 2));
    assert!(head.starts_with("HTTP/2 429"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let error: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (&json!(2), &json!(-32000))
    );
}

#[test]
fn methods_without_a_name_count_as_calls_of_the_user() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": { "uri": "file:///a" } }),
        // An answer to a question of the server.
        json!({ "jsonrpc": "2.0", "id": 9, "result": {} }),
    ] {
        assert_eq!(post(&service, &message).status, 200);
    }
    assert_eq!(left(&service, "calls", "identity=ann"), 6);
}

#[test]
fn the_body_is_forwarded_byte_for_byte() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    let body = " {\"params\" : {\"name\":\"ec\\u0068o\",\"arguments\":{\"x\":[1e3,null]}},\r\n\t\
                \"m\\u0065thod\":\"tools/call\", \"id\": 1.0 } ";
    for transport in TRANSPORTS {
        assert_eq!(post_with(&service, transport, "", body).status, 200);
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!(
            "POST /mcp HTTP/1.1\r\nHost: a\r\nX-User-Id: bob\r\nTransfer-Encoding: chunked\r\n\r\n\
             {:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ));
        assert_eq!(client.read_answer().unwrap().status, 200);
    }
    for request in upstream.requests() {
        assert_eq!(request.body, body.as_bytes());
    }
    assert_eq!(tool_left(&service, "echo").0, 1);
}

#[test]
fn a_refused_notification_has_no_id() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    let notification = json!({ "method": "tools/call", "params": { "name": "shell" } });
    let refused = post(&service, &notification);
    assert_eq!(
        (refused.status, &json_of(&refused)["id"]),
        (403, &Value::Null)
    );
}

#[test]
fn sources_feed_identities_and_attributes() {
    let upstream = RawUpstream::answering(OK);
    let config = format!(
        "filters:\n  main:\n    rule_set: s\n    identity: {{ user: \"mcp:method\", api_key: [\"mcp:name\", \"header:X-Key\"] }}\n    \
         attributes: {{ tool: \"mcp:name\" }}\n\
         gateway:\n  routes:\n    - {{ id: mcp, upstreams: [\"http://{}\"], filters: [main], mcp: {{ filter: main }} }}\n\
         rule_sets:\n  s:\n    rules:\n      \
         - {{ id: user, scope: per_user, algorithm: fixed_window, bands: [ {{ capacity: 9, window: 300d }} ] }}\n      \
         - {{ id: key, scope: per_api_key, algorithm: fixed_window, bands: [ {{ capacity: 9, window: 300d }} ] }}\n      \
         - {{ id: tool, key: [\"attr:tool\", \"mcp:method\"], on_missing_key: skip, algorithm: fixed_window, bands: [ {{ capacity: 9, window: 300d }} ] }}\n",
        upstream.address()
    );
    let service = Service::start(&["gateway"], &config);
    assert_eq!(post(&service, &tool("echo", 1)).status, 200);
    let list = json!({ "id": 1, "method": "tools/list" });
    assert_eq!(
        post_with(
            &service,
            Transport::Hyper,
            "X-Key: k\r\n",
            &list.to_string()
        )
        .status,
        200
    );
    assert_eq!(left(&service, "user", "identity=tools/call"), 8);
    assert_eq!(left(&service, "user", "identity=tools/list"), 8);
    assert_eq!(left(&service, "key", "identity=echo"), 8);
    assert_eq!(left(&service, "key", "identity=k"), 8);
    assert_eq!(
        left(&service, "tool", "identity=echo&identity=tools/call"),
        8
    );
}
