//! What happened: thresholds, the log of events, and webhooks.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

use fluxgate_testkit::{RedisServer, wait_for};
use serde_json::{Value, json};

use crate::service::Service;

mod fleet;
mod log;
mod meetings;
mod receiver;
mod thresholds;
mod webhooks;

/// More than an event takes to arrive, on a loaded machine.
const MOST_SILENCE: Duration = Duration::from_secs(30);

/// Ten an hour for each user, with events at 80% and 100%.
const NOTIFIES: &str = "
telemetry: { identities: true }
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, bands: [ { id: hour, capacity: 10, window: 1h } ], notify: [80%, 100%] }
";

/// Returns a config with this store and these rules.
fn on_redis(server: &RedisServer, config: &str) -> String {
    let url = server.url();
    format!("store: {{ redis: {{ url: \"{url}\", deadline: 10s }} }}\n{config}")
}

fn start(server: &RedisServer, config: &str) -> Service {
    Service::start(&[], &on_redis(server, config))
}

/// Sends requests of a user together.
#[track_caller]
fn spend(service: &Service, user: &str, cost: u64) -> Value {
    let body = json!({ "rule_set": "api", "user": user, "cost": cost });
    let answer = service.http().post("/v1/check", &body.to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

/// Returns the last events.
#[track_caller]
fn events(service: &Service) -> Vec<Value> {
    let answer = service.http().get("/v1/events");
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut answer: Value = serde_json::from_str(&answer.body).unwrap();
    match answer["events"].take() {
        Value::Array(events) => events,
        other => panic!("{other}"),
    }
}

/// Returns the identity and the share of each threshold among events.
fn thresholds(events: &[Value]) -> Vec<(String, u64)> {
    let thresholds = events.iter().filter(|event| event["kind"] == "threshold");
    thresholds
        .map(|it| {
            (
                it["identity"].as_str().unwrap().to_owned(),
                it["share"].as_u64().unwrap(),
            )
        })
        .collect()
}

/// Waits until there are so many thresholds, and returns them.
#[track_caller]
fn wait_for_thresholds(service: &Service, count: usize) -> Vec<(String, u64)> {
    wait_for(&format!("{count} thresholds"), || {
        Some(thresholds(&events(service))).filter(|it| it.len() >= count)
    })
}

/// Reads `/v1/events` as a stream.
struct EventStream {
    stream: BufReader<TcpStream>,
    /// The id of the last message.
    last_id: Option<String>,
}

impl EventStream {
    /// Opens a stream and waits until it has begun.
    fn open(service: &Service, last_id: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(service.address("api")).unwrap();
        stream.set_read_timeout(Some(MOST_SILENCE)).unwrap();
        let resume = last_id.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        let head = format!(
            "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{resume}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut opened = Self {
            stream: BufReader::new(stream),
            last_id: last_id.map(str::to_owned),
        };
        while opened.line().is_some_and(|line| line != ": events") {}
        opened
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no event: {error}"),
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
        }
    }

    /// Returns the next event; `None` at the end of the stream.
    fn next(&mut self) -> Option<Value> {
        loop {
            let line = self.line()?;
            if line == "0" {
                return None;
            }
            if let Some(id) = line.strip_prefix("id: ") {
                self.last_id = Some(id.to_owned());
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    /// Returns the next event of a kind.
    fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next().unwrap();
            if event["kind"] == kind {
                return event;
            }
        }
    }
}
