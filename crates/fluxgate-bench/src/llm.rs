//! Streamed answers of a language model through a route that counts tokens, compared with the same
//! route without counting.

use std::net::SocketAddr;
use std::thread;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::load::compare;
use crate::report::Report;
use crate::service::{self, TempDir};
use crate::wrk;

/// The number of words in an answer. Each word is one event, sent in its own write.
const WORDS: usize = 128;

/// The requests of 1,000 users, all with the same body.
const CHATS: &str = r#"
local users = {}
init = function()
    local body = '{"model":"m","stream":true,"max_tokens":256,"messages":[' ..
        '{"role":"system","content":"You answer briefly."},' ..
        '{"role":"user","content":"Why is the sky blue?"}]}'
    for user = 0, 999 do
        local headers = { ["Host"] = wrk.host, ["X-User-Id"] = string.format("user-%08d", user),
            ["Content-Type"] = "application/json" }
        users[user] = wrk.format("POST", "/v1/chat/completions", headers, body)
    end
end
"#;

pub(crate) fn run(report: &mut Report) {
    let dir = TempDir::new("gateway-llm");
    let script = wrk::script(&dir, CHATS);
    let upstream = start_model();
    let start = |llm: &str| service::start(&dir, &["gateway"], &config(upstream, llm));
    let (Some(ours), Some(plain)) = (start(", llm: { rules: main }"), start("")) else {
        return;
    };
    compare(
        report,
        "gateway-llm",
        "our gateway, the same stream uncounted",
        || wrk::ask(ours.address("gateway"), &script),
        || wrk::ask(plain.address("gateway"), &script),
    );
}

/// Returns a config whose rules count each user and never deny.
fn config(upstream: SocketAddr, llm: &str) -> String {
    format!(
        "filters: {{ main: {{ rule_set: llm }} }}
gateway:
  routes:
    - {{ id: all, upstreams: [\"http://{upstream}\"], filters: [main]{llm} }}
rule_sets:
  llm:
    rules:
      - {{ id: tokens, scope: per_user, cost: \"llm:total_tokens\", bands: [ {{ capacity: 1000000000, window: 1s }} ] }}
      - {{ id: requests, scope: per_user, bands: [ {{ capacity: 1000000, window: 1s }} ] }}
"
    )
}

/// Starts a server that streams an answer to every request. It runs until the process exits.
#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
fn start_model() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        runtime.unwrap().block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
    });
    address
}

async fn serve(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let events = events();
    let mut read = vec![0; 16 * 1024];
    let mut filled = 0;
    loop {
        // The gateway sends one request at a time, and its JSON body ends with `}`.
        while !read[..filled].ends_with(b"}") {
            match stream.read(&mut read[filled..]).await {
                Ok(count @ 1..) => filled += count,
                _ => return,
            }
        }
        filled = 0;
        for event in &events {
            if stream.write_all(event).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Returns the parts of an answer: its head, its events in chunks, and its end.
fn events() -> Vec<Vec<u8>> {
    let chunk = |data: &str| {
        let event = format!("data: {data}\n\n");
        format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
    };
    let with = |rest: &str| {
        let start = r#"{"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":1741569952,"model":"m","#;
        chunk(&format!("{start}{rest}}}"))
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let mut parts = vec![head.as_bytes().to_vec()];
    let word = r#""choices":[{"index":0,"delta":{"content":" light"},"logprobs":null,"finish_reason":null}]"#;
    parts.extend((0..WORDS).map(|_| with(word)));
    parts.push(with(&format!(
        r#""choices":[],"usage":{{"prompt_tokens":20,"completion_tokens":{WORDS},"total_tokens":{}}}"#,
        20 + WORDS
    )));
    parts.push([chunk("[DONE]"), b"0\r\n\r\n".to_vec()].concat());
    parts
}
