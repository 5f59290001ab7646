//! Calls of the Model Context Protocol at the gateway, in front of a server with known answers.

mod batches;
mod bodies;
mod calls;
mod config;
mod headers;
mod meetings;

use std::process::Command;

use fluxgate_testkit::{RawClient, RawUpstream, WireAnswer};
use serde_json::{Value, json};

use crate::service::Service;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Tools are counted by user and name, calls by user, and one tool is forbidden. Windows are
/// long, so that nothing returns by itself.
const RULES: &str = r#"
rule_sets:
  s:
    rules:
      - { id: no-shell, action: deny, match: { attributes: { "mcp:name": [shell] } } }
      - { id: per-tool, key: [user, "mcp:name"], match: { attributes: { "mcp:method": tools/call } }, algorithm: fixed_window, bands: [ { capacity: 3, window: 300d } ] }
      - { id: calls, scope: per_user, algorithm: fixed_window, bands: [ { capacity: 10, window: 300d } ] }
"#;

/// Starts a gateway in front of this server, with further fields of the route and these rules.
fn start_with(upstream: &RawUpstream, route: &str, rules: &str) -> Service {
    let config = format!(
        "filters: {{ main: {{ rule_set: s }} }}\n\
         gateway:\n  routes:\n    - {{ id: mcp, upstreams: [\"http://{}\"], filters: [main], \
         mcp: {{ filter: main }}{route} }}\n{rules}",
        upstream.address()
    );
    Service::start(&["gateway"], &config)
}

fn start(upstream: &RawUpstream) -> Service {
    start_with(upstream, "", RULES)
}

/// How a request reaches the gateway.
#[derive(Clone, Copy, Debug)]
enum Transport {
    FastPath,
    Hyper,
}

const TRANSPORTS: [Transport; 2] = [Transport::FastPath, Transport::Hyper];

/// Posts a body with these header lines.
fn post_with(service: &Service, transport: Transport, headers: &str, body: &str) -> WireAnswer {
    let mut client = RawClient::connect(service.address("gateway"));
    client.send(request(transport, headers, body));
    client.read_answer().unwrap()
}

fn request(transport: Transport, headers: &str, body: &str) -> String {
    // Hyper reads requests with a header that concerns the connection.
    let more = match transport {
        Transport::FastPath => "",
        Transport::Hyper => "TE: trailers\r\nConnection: TE\r\n",
    };
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: a\r\nX-User-Id: ann\r\nContent-Type: application/json\r\n\
         {more}{headers}Content-Length: {length}\r\n\r\n{body}"
    )
}

/// Posts a message.
fn post(service: &Service, message: &Value) -> WireAnswer {
    post_with(service, Transport::FastPath, "", &message.to_string())
}

/// Posts a message over HTTP/2; returns the head and the body of the answer.
fn post_http2(service: &Service, message: &Value) -> (String, String) {
    let curl = Command::new("curl")
        .args(["-sSi", "--http2-prior-knowledge", "-m", "20"])
        .args([
            "-H",
            "X-User-Id: ann",
            "-H",
            "Content-Type: application/json",
        ])
        .args(["-d", &message.to_string()])
        .arg(format!("http://{}/mcp", service.address("gateway")))
        .output()
        .unwrap();
    let answer = String::from_utf8(curl.stdout).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// A call of a tool.
fn tool(name: &str, id: impl Into<Value>) -> Value {
    let id = id.into();
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name } })
}

/// Returns the body of an answer.
#[track_caller]
fn json_of(answer: &WireAnswer) -> Value {
    assert_eq!(answer.values("content-type"), ["application/json"]);
    serde_json::from_slice(&answer.body).unwrap()
}

/// Returns what is left for an identity.
fn left(service: &Service, rule: &str, identity: &str) -> u64 {
    let path = format!("/v1/state?rule_set=s&rule={rule}&{identity}");
    let state: Value = serde_json::from_str(&service.http().get(&path).body).unwrap();
    let left = &state["bands"][0]["remaining"];
    left.as_u64().unwrap_or_else(|| panic!("{state}"))
}

/// Returns how many calls of a tool Ann has left, and how many calls in all.
fn tool_left(service: &Service, tool: &str) -> (u64, u64) {
    let identity = format!("identity=ann&identity={tool}");
    let of_tool = left(service, "per-tool", &identity);
    (of_tool, left(service, "calls", "identity=ann"))
}
