//! Headers of protocol 2026-07-28, which repeat what the body says.

use super::*;

const VERSION: &str = "MCP-Protocol-Version: 2026-07-28\r\n";

#[test]
fn headers_that_agree_with_the_body_are_forwarded() {
    for transport in TRANSPORTS {
        let upstream = RawUpstream::answering(OK);
        let service = start(&upstream);
        for name in ["echo", "=?base64?ZWNobw==?="] {
            let headers = format!("{VERSION}Mcp-Method: tools/call\r\nMcp-Name: {name}\r\n");
            let body = tool("echo", 1).to_string();
            assert_eq!(post_with(&service, transport, &headers, &body).status, 200);
            let requests = upstream.requests();
            let last = requests.last().unwrap();
            assert_eq!(last.values("mcp-method"), ["tools/call"]);
            assert_eq!(last.values("mcp-name"), [name]);
            assert_eq!(last.values("mcp-protocol-version"), ["2026-07-28"]);
        }
        assert_eq!(tool_left(&service, "echo"), (1, 8));
    }
}

#[test]
fn headers_that_contradict_the_body_are_refused_and_free() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    let call = tool("echo", 1).to_string();
    let list = json!({ "id": 1, "method": "tools/list" }).to_string();
    let batch = json!([tool("echo", 1)]).to_string();
    let answer = json!({ "id": 1, "result": {} }).to_string();
    for transport in TRANSPORTS {
        for (headers, body) in [
            ("Mcp-Method: ping\r\n", &call),
            ("Mcp-Method: tools/call\r\nMcp-Name: other\r\n", &call),
            ("Mcp-Name: other\r\n", &call),
            ("Mcp-Name: =?base64?b3RoZXI=?=\r\n", &call),
            ("Mcp-Name: =?base64?!?=\r\n", &call),
            ("Mcp-Name: echo\r\nMcp-Name: other\r\n", &call),
            (
                "Mcp-Method: tools/list\r\nMcp-Method: tools/call\r\n",
                &call,
            ),
            ("Mcp-Method: tools/list\r\nMcp-Name: echo\r\n", &list),
            ("Mcp-Method: tools/call\r\n", &batch),
            ("Mcp-Method: tools/call\r\n", &answer),
        ] {
            let refused = post_with(&service, transport, headers, body);
            assert_eq!(refused.status, 400, "{transport:?} {headers}: {refused:?}");
        }
    }
    assert!(upstream.requests().is_empty());
    assert_eq!(left(&service, "calls", "identity=ann"), 10);
}

#[test]
fn headers_alike_to_them_are_not_forwarded() {
    let upstream = RawUpstream::answering(OK);
    let service = start(&upstream);
    let headers = "Mcp_Method: ping\r\nMCP.Name: other\r\nMcp-Session-Id: 1\r\n";
    for transport in TRANSPORTS {
        let body = tool("echo", 1).to_string();
        assert_eq!(post_with(&service, transport, headers, &body).status, 200);
    }
    for request in upstream.requests() {
        let names: Vec<_> = request.headers.iter().map(|(name, _)| &name[..]).collect();
        assert!(
            !names.contains(&"mcp_method") && !names.contains(&"mcp.name"),
            "{names:?}"
        );
        assert_eq!(request.values("mcp-session-id"), ["1"]);
    }
}
