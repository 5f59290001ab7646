//! Budgets of tokens at the gateway, in front of a server with known answers.

mod aborted;
mod apis;
mod before_body;
mod buffer;
mod clamp;
mod config;
mod content_types;
mod cut_off;
mod echo;
mod headers;
mod http2_client;
mod identity;
mod openai_client;
mod redis;
mod refused;
mod settled;
mod unknown;
mod waiting;

use fluxgate_testkit::{Answer, Http, ModelServer, RawClient, wait_for};
use serde_json::{Value, json};

use crate::service::Service;

/// What a rule that counts tokens allows.
const CAPACITY: u64 = 100_000;
/// What the rule that counts requests allows.
const REQUESTS: u64 = 100;
/// The tokens of the model's answer and its prompt.
const TOTAL: u64 = ModelServer::PROMPT_TOKENS + ModelServer::COMPLETION_TOKENS;
const CHAT: &str = "/v1/chat/completions";

/// A rule for each number of a call. Windows are long, so that nothing returns by itself.
const RULES: &str = r#"
rule_sets:
  s:
    rules:
      - { id: total, scope: per_api_key, algorithm: fixed_window, cost: "llm:total_tokens", bands: [ { capacity: 100000, window: 300d } ] }
      - { id: prompt, scope: per_api_key, algorithm: fixed_window, cost: "llm:prompt_tokens", bands: [ { capacity: 100000, window: 300d } ] }
      - { id: completion, scope: per_api_key, algorithm: fixed_window, cost: "llm:completion_tokens", bands: [ { capacity: 100000, window: 300d } ] }
      - { id: requests, scope: per_api_key, algorithm: fixed_window, bands: [ { capacity: 100, window: 300d } ] }
"#;

/// Starts a gateway in front of a model, with these rules, which are named `s`.
fn start_with(model: &ModelServer, rules: &str) -> Service {
    start_at(&model.url(), rules)
}

/// The same, in front of any server.
fn start_at(url: &str, rules: &str) -> Service {
    start_route(url, "{ rules: main }", rules)
}

/// The same, with this setting `llm` of the route.
fn start_route(url: &str, llm: &str, rules: &str) -> Service {
    let config = format!(
        "filters: {{ main: {{ rule_set: s }} }}\n\
         gateway:\n  routes:\n    - {{ id: llm, upstreams: [\"{url}\"], filters: [main], \
         llm: {llm} }}\n{rules}"
    );
    Service::start(&["gateway"], &config)
}

/// The same, with a rule for each number of a call.
fn start(model: &ModelServer) -> Service {
    start_with(model, RULES)
}

/// Calls the model through the gateway.
fn call(service: &Service, path: &str, body: &Value) -> Answer {
    Http::new(service.address("gateway")).request(
        "POST",
        path,
        &[
            ("Content-Type", "application/json"),
            ("X-API-Key", "k"),
            ("Authorization", "Bearer k"),
            ("Accept-Encoding", "gzip"),
        ],
        &body.to_string(),
    )
}

/// Sends a call without reading its answer.
fn send(service: &Service, chat: &Value) -> Http {
    let chat = chat.to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: a\r\nX-API-Key: k\r\nContent-Length: {}\r\n\r\n",
        chat.len()
    );
    let mut client = Http::new(service.address("gateway"));
    client.send_raw((head + &chat).as_bytes()).unwrap();
    client
}

/// Sends a call and reads until the answer contains `text`.
fn read_until(service: &Service, chat: &Value, is_fast: bool, text: &str) -> std::net::TcpStream {
    let chat = chat.to_string();
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

/// A chat with this model. Its prompt is bounded by 14 tokens: 4 of the message, and 10 of 29
/// bytes, those of the members' names included.
fn chat(model: &str) -> Value {
    json!({ "model": model, "max_tokens": 50,
        "messages": [{ "role": "user", "content": "Say hello, pls" }] })
}

/// The bound of the prompt of [`chat`].
const PROMPT_BOUND: u64 = 14;

/// The same, streamed.
fn streamed_chat(model: &str) -> Value {
    let mut chat = chat(model);
    chat["stream"] = json!(true);
    chat
}

/// Returns what a rule has charged.
fn charged_by(service: &Service, rule: &str) -> u64 {
    let path = format!("/v1/state?rule_set=s&rule={rule}&identity=k");
    // A busy Redis can miss the deadline.
    let state = wait_for("the state", || {
        let answer = service.http().get(&path);
        (answer.status != 503).then_some(answer.body)
    });
    let state: Value = serde_json::from_str(&state).unwrap();
    let band = &state["bands"][0];
    let number = |name: &str| {
        band[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} of {band}"))
    };
    number("limit") - number("remaining")
}

/// Returns what the rules have charged: all tokens, those of the prompt and of the
/// completion, and requests.
fn charged(service: &Service) -> [u64; 4] {
    ["total", "prompt", "completion", "requests"].map(|rule| charged_by(service, rule))
}

/// What is charged for a call whose usage is known.
const REPORTED: [u64; 4] = [
    TOTAL,
    ModelServer::PROMPT_TOKENS,
    ModelServer::COMPLETION_TOKENS,
    1,
];
