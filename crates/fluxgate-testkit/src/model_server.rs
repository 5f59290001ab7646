//! A server with the APIs of language models, whose answers are known.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::raw_upstream::{RawConnection, RawUpstream};
use crate::wire::WireRequest;

/// A server with the APIs of OpenAI and Anthropic. It answers every prompt with
/// [`ModelServer::WORDS`], one token each.
///
/// The name of the model selects the behaviour, by words separated by spaces:
///
/// | word | behaviour |
/// |---|---|
/// | `mute` | reports no usage |
/// | `silent` | does not answer |
/// | `status=503` | fails with this status |
/// | `hold=2` | stops after two words until the client disconnects |
/// | `wait=2` | stops after two words until [`ModelServer::release`] |
/// | `cut=2` | closes the connection after two words |
/// | `break=2` | resets the connection after two words |
/// | `sized` | streams with a length |
/// | `open` | streams until it closes the connection |
/// | `dribble` | streams in chunks of one byte |
/// | `tool` | calls a tool |
/// | `twice` | has two choices |
#[derive(Debug)]
pub struct ModelServer {
    upstream: RawUpstream,
    received: Arc<Mutex<Vec<WireRequest>>>,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl ModelServer {
    /// The tokens of every completion.
    pub const WORDS: [&str; 5] = ["Gr", "üß", "e 👋", "🏽", "!"];
    /// The tokens of every prompt.
    pub const PROMPT_TOKENS: u64 = 7;
    /// The number of tokens of every completion.
    pub const COMPLETION_TOKENS: u64 = Self::WORDS.len() as u64;

    /// Starts a server.
    pub fn start() -> Self {
        let received = Arc::<Mutex<Vec<_>>>::default();
        let gate = Arc::new(Gate::default());
        let upstream = {
            let (received, gate) = (Arc::clone(&received), Arc::clone(&gate));
            RawUpstream::start(move |connection| {
                while let Some(request) = connection.read_request() {
                    lock(&received).push(request.clone());
                    if !answer(connection, &request, &gate) {
                        return;
                    }
                }
            })
        };
        Self {
            upstream,
            received,
            gate,
        }
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.upstream.address())
    }

    /// Returns the requests received so far, on all connections, in the order of their arrival.
    pub fn requests(&self) -> Vec<WireRequest> {
        lock(&self.received).clone()
    }

    /// Returns the body of the last request.
    ///
    /// # Panics
    /// If there is none.
    pub fn last_body(&self) -> Value {
        let requests = self.requests();
        let last = requests.last().expect("a request was received");
        serde_json::from_slice(&last.body).expect("the gateway sends JSON")
    }

    /// Lets answers that wait go on.
    pub fn release(&self) {
        *lock(&self.gate.is_open) = true;
        self.gate.opened.notify_all();
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.release();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The behaviour that the name of a model selects.
struct Behaviour<'a>(&'a str);

impl Behaviour<'_> {
    fn has(&self, word: &str) -> bool {
        self.0.split(' ').any(|known| known == word)
    }

    fn number(&self, word: &str) -> Option<usize> {
        let mut words = self.0.split(' ').filter_map(|it| it.split_once('='));
        let (_, number) = words.find(|(known, _)| *known == word)?;
        number.parse().ok()
    }
}

/// Answers a request. Returns whether the connection stays open.
fn answer(connection: &mut RawConnection, request: &WireRequest, gate: &Gate) -> bool {
    let path = request.target.split('?').next().unwrap_or_default();
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let behaviour = Behaviour(body["model"].as_str().unwrap_or_default());
    if let Some(status) = behaviour.number("status") {
        let body = json!({ "error": { "message": "not now", "type": "server_error" } });
        send_json(connection, &format!("{status} Failed"), &body);
        return true;
    }
    if behaviour.has("silent") {
        connection.hold();
        return false;
    }
    if request.method != "POST" {
        send_json(
            connection,
            "200 OK",
            &json!({ "object": "list", "data": [] }),
        );
        return true;
    }
    let usage = !behaviour.has("mute");
    if body["stream"] != true {
        send_json(connection, "200 OK", &whole_answer(path, &behaviour, usage));
        return true;
    }
    let asks_for_usage = path.ends_with("/responses")
        || path.ends_with("/messages")
        || body["stream_options"]["include_usage"] == true;
    let events = events(path, &behaviour, usage && asks_for_usage);
    stream(connection, &behaviour, &events, gate)
}

fn send_json(connection: &mut RawConnection, status: &str, body: &Value) {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-ratelimit-limit-tokens: 9\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    connection.send(head + &body);
}

fn whole_answer(path: &str, behaviour: &Behaviour<'_>, usage: bool) -> Value {
    let text = ModelServer::WORDS.concat();
    let choices = if behaviour.has("twice") { 2 } else { 1 };
    let (prompt, completion) = (
        ModelServer::PROMPT_TOKENS,
        ModelServer::COMPLETION_TOKENS * choices,
    );
    let mut answer = if path.ends_with("/embeddings") {
        json!({ "object": "list", "data": [{ "index": 0, "embedding": [0.5, -0.25] }],
            "usage": { "prompt_tokens": prompt, "total_tokens": prompt } })
    } else if path.ends_with("/messages") {
        json!({ "type": "message", "role": "assistant",
            "content": [{ "type": "text", "text": text }],
            "usage": { "input_tokens": prompt, "output_tokens": completion } })
    } else if path.ends_with("/responses") {
        json!({ "object": "response", "status": "completed",
            "output": [{ "type": "message", "role": "assistant",
                "content": [{ "type": "output_text", "text": text }] }],
            "usage": { "input_tokens": prompt, "output_tokens": completion,
                "total_tokens": prompt + completion } })
    } else {
        let message = if behaviour.has("tool") {
            json!({ "role": "assistant", "content": null,
                "tool_calls": [{ "id": "c", "type": "function",
                    "function": { "name": "greet", "arguments": text } }] })
        } else {
            json!({ "role": "assistant", "content": text })
        };
        let is_chat = path.ends_with("/chat/completions");
        let choice = |index: u64| {
            if is_chat {
                json!({ "index": index, "message": message, "finish_reason": "stop" })
            } else {
                json!({ "index": index, "text": text, "finish_reason": "stop" })
            }
        };
        let choices: Vec<_> = (0..choices).map(choice).collect();
        json!({ "id": "x", "object": "chat.completion", "created": 1, "model": "m",
            "choices": choices,
            "usage": { "prompt_tokens": prompt, "completion_tokens": completion,
                "total_tokens": prompt + completion } })
    };
    if !usage && let Some(members) = answer.as_object_mut() {
        members.remove("usage");
    }
    answer
}

/// Returns the events of a stream. The events with words come first, one for each word.
fn events(path: &str, behaviour: &Behaviour<'_>, usage: bool) -> Vec<String> {
    let data = |value: Value| format!("data: {value}\n\n");
    let (prompt, completion) = (ModelServer::PROMPT_TOKENS, ModelServer::COMPLETION_TOKENS);
    let words = ModelServer::WORDS;
    if path.ends_with("/messages") {
        let named = |name: &str, value: Value| format!("event: {name}\ndata: {value}\n\n");
        let delta = |word: &str| {
            let delta = json!({ "type": "text_delta", "text": word });
            named(
                "content_block_delta",
                json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
            )
        };
        let mut events: Vec<_> = words.iter().map(|word| delta(word)).collect();
        if usage {
            let usage = json!({ "input_tokens": prompt, "output_tokens": completion });
            let value = json!({ "type": "message_delta", "delta": {}, "usage": usage });
            events.push(named("message_delta", value));
        }
        events.push(named("message_stop", json!({ "type": "message_stop" })));
        return events;
    }
    if path.ends_with("/responses") {
        let delta = |word: &&str| {
            let delta = json!({ "type": "response.output_text.delta", "delta": word });
            data(delta)
        };
        let mut events: Vec<_> = words.iter().map(delta).collect();
        let mut response = json!({ "object": "response", "status": "completed", "output": [] });
        if usage {
            response["usage"] = json!({ "input_tokens": prompt, "output_tokens": completion,
                "total_tokens": prompt + completion });
        }
        events.push(data(
            json!({ "type": "response.completed", "response": response }),
        ));
        return events;
    }
    let chunk = |choices: Value| {
        json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": choices })
    };
    let choices = if behaviour.has("twice") { 2 } else { 1 };
    let mut events = Vec::new();
    for word in words {
        let delta = if behaviour.has("tool") {
            json!({ "tool_calls": [{ "index": 0, "function": { "arguments": word } }] })
        } else {
            json!({ "content": word })
        };
        for index in 0..choices {
            let choice = if path.ends_with("/chat/completions") {
                json!([{ "index": index, "delta": delta }])
            } else {
                json!([{ "index": index, "text": word }])
            };
            events.push(data(chunk(choice)));
        }
    }
    if usage {
        let completion = completion * choices;
        let mut last = chunk(json!([]));
        last["usage"] = json!({ "prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": prompt + completion });
        events.push(data(last));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn stream(
    connection: &mut RawConnection,
    behaviour: &Behaviour<'_>,
    events: &[String],
    gate: &Gate,
) -> bool {
    let (is_sized, is_open) = (behaviour.has("sized"), behaviour.has("open"));
    let framing = match (is_sized, is_open) {
        (true, _) => format!("content-length: {}\r\n", events.concat().len()),
        (false, true) => "connection: close\r\n".to_owned(),
        (false, false) => "transfer-encoding: chunked\r\n".to_owned(),
    };
    let is_chunked = !is_sized && !is_open;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n");
    connection.send(head);
    for (index, event) in events.iter().enumerate() {
        if behaviour.number("hold") == Some(index) {
            connection.hold();
            return false;
        }
        if behaviour.number("cut") == Some(index) {
            return false;
        }
        if behaviour.number("break") == Some(index) {
            connection.break_at_end();
            return false;
        }
        if behaviour.number("wait") == Some(index) {
            let is_open = lock(&gate.is_open);
            let opened = gate.opened.wait_while(is_open, |is_open| !*is_open);
            drop(opened.unwrap_or_else(PoisonError::into_inner));
        }
        let size = if behaviour.has("dribble") {
            1
        } else {
            event.len()
        };
        for part in event.as_bytes().chunks(size) {
            if is_chunked {
                connection.send(format!("{:x}\r\n", part.len()));
            }
            connection.send(part);
            connection.send(if is_chunked { "\r\n" } else { "" });
        }
    }
    if is_chunked {
        connection.send("0\r\n\r\n");
    }
    !is_open
}
