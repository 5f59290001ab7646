//! A client in another language, with the messages that Envoy's project
//! publishes: it knows nothing of how they are written here.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::service::Service;
use crate::support::{project_file, python};

/// A running client, which ends when dropped.
pub(super) struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    /// A client of a service.
    pub(super) fn of(service: &Service) -> Self {
        Self::at(service.address("grpc"))
    }

    fn at(address: SocketAddr) -> Self {
        let script = project_file("crates/fluxgate/tests/it/service/grpc/client.py");
        let mut child = Command::new(python())
            .arg(script)
            .arg(address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            stdin,
            stdout,
        }
    }

    /// Says what to ask, and tells what was answered.
    pub(super) fn call(&mut self, asked: &Value) -> Value {
        self.send(asked);
        self.next()
    }

    /// Says what to ask.
    pub(super) fn send(&mut self, asked: &Value) {
        writeln!(self.stdin, "{asked}").unwrap();
    }

    /// The next answer.
    pub(super) fn next(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the client ended");
        serde_json::from_str(&line).unwrap()
    }

    /// `ShouldRateLimit` with this request.
    #[track_caller]
    pub(super) fn ask(&mut self, request: &Value) -> Response {
        let answer = self.call(&json!({ "call": "check", "request": request }));
        assert!(answer["response"].is_object(), "{request}: {answer}");
        Response(answer["response"].clone())
    }

    /// `ShouldRateLimit` for one descriptor of one entry.
    #[track_caller]
    pub(super) fn check(&mut self, domain: &str, key: &str, value: &str) -> Response {
        let descriptor = descriptor(&[(key, value)]);
        self.ask(&json!({ "domain": domain, "descriptors": [descriptor] }))
    }

    /// The code and the message of what goes wrong with this request.
    #[track_caller]
    pub(super) fn refused(&mut self, request: &Value) -> (String, String) {
        error(&self.call(&json!({ "call": "check", "request": request })))
    }

    /// The health of a service.
    pub(super) fn health(&mut self, service: &str) -> Value {
        self.call(&json!({ "call": "health", "service": service }))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A descriptor with these entries.
pub(super) fn descriptor(entries: &[(&str, &str)]) -> Value {
    let entries = entries.iter();
    let entries = entries.map(|(key, value)| json!({ "key": key, "value": value }));
    json!({ "entries": entries.collect::<Vec<_>>() })
}

/// The code and the message of an error.
#[track_caller]
pub(super) fn error(answer: &Value) -> (String, String) {
    let text = |name: &str| answer["error"][name].as_str().map(str::to_owned);
    let error = text("code").zip(text("message"));
    error.unwrap_or_else(|| panic!("no error: {answer}"))
}

/// What the service answered.
#[derive(Debug)]
pub(super) struct Response(pub(super) Value);

impl Response {
    /// The code of the whole call.
    pub(super) fn code(&self) -> &str {
        self.0["overall_code"].as_str().unwrap()
    }

    /// The codes of the descriptors.
    pub(super) fn codes(&self) -> Vec<&str> {
        let statuses = self.statuses().iter();
        statuses
            .map(|status| status["code"].as_str().unwrap())
            .collect()
    }

    /// The statuses of the descriptors.
    pub(super) fn statuses(&self) -> &[Value] {
        self.0["statuses"].as_array().unwrap()
    }

    /// What is left of each descriptor's limit.
    pub(super) fn remaining(&self) -> Vec<u64> {
        let statuses = self.statuses().iter();
        statuses
            .map(|status| status["limit_remaining"].as_u64().unwrap())
            .collect()
    }

    /// The header of this name.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let headers = self.0["response_headers_to_add"].as_array().unwrap();
        let header = headers.iter().find(|header| header["key"] == name)?;
        header["value"].as_str()
    }

    /// The names of all headers.
    pub(super) fn headers(&self) -> Vec<&str> {
        let headers = self.0["response_headers_to_add"].as_array().unwrap();
        headers
            .iter()
            .map(|header| header["key"].as_str().unwrap())
            .collect()
    }
}
