//! A client in Python with the messages that Envoy publishes, so that it shares no code
//! with the service.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::service::Service;
use crate::support::{project_file, python};

/// A running client, which ends when dropped.
pub(crate) struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    pub(super) fn of(service: &Service) -> Self {
        Self::at(service.address("grpc"))
    }

    /// Starts a client of a server.
    pub(crate) fn at(address: SocketAddr) -> Self {
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

    /// Makes a call and returns its result.
    pub(crate) fn call(&mut self, call: &Value) -> Value {
        self.send(call);
        self.next()
    }

    /// Makes a call.
    pub(crate) fn send(&mut self, call: &Value) {
        writeln!(self.stdin, "{call}").unwrap();
    }

    /// Returns the next result.
    pub(crate) fn next(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the client ended");
        serde_json::from_str(&line).unwrap()
    }

    /// Calls `ShouldRateLimit`.
    #[track_caller]
    pub(super) fn should_rate_limit(&mut self, request: &Value) -> Response {
        let result = self.call(&json!({ "call": "check", "request": request }));
        assert!(result["response"].is_object(), "{request}: {result}");
        Response(result["response"].clone())
    }

    /// Calls `ShouldRateLimit` with one descriptor of one entry.
    #[track_caller]
    pub(super) fn check(&mut self, domain: &str, key: &str, value: &str) -> Response {
        let descriptor = descriptor(&[(key, value)]);
        self.should_rate_limit(&json!({ "domain": domain, "descriptors": [descriptor] }))
    }

    /// Calls `ShouldRateLimit` and returns the code and the message of the error.
    #[track_caller]
    pub(super) fn check_error(&mut self, request: &Value) -> (String, String) {
        error(&self.call(&json!({ "call": "check", "request": request })))
    }

    pub(crate) fn health(&mut self, service: &str) -> Value {
        self.call(&json!({ "call": "health", "service": service }))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn descriptor(entries: &[(&str, &str)]) -> Value {
    let entries = entries.iter();
    let entries = entries.map(|(key, value)| json!({ "key": key, "value": value }));
    json!({ "entries": entries.collect::<Vec<_>>() })
}

/// Returns the code and the message of an error.
#[track_caller]
pub(super) fn error(result: &Value) -> (String, String) {
    let text = |name: &str| result["error"][name].as_str().map(str::to_owned);
    let error = text("code").zip(text("message"));
    error.unwrap_or_else(|| panic!("no error: {result}"))
}

/// A `RateLimitResponse` as JSON.
#[derive(Debug)]
pub(super) struct Response(pub(super) Value);

impl Response {
    /// Returns the code of the call.
    pub(super) fn code(&self) -> &str {
        self.0["overall_code"].as_str().unwrap()
    }

    /// Returns the codes of the descriptors.
    pub(super) fn codes(&self) -> Vec<&str> {
        let statuses = self.statuses().iter();
        statuses
            .map(|status| status["code"].as_str().unwrap())
            .collect()
    }

    pub(super) fn statuses(&self) -> &[Value] {
        self.0["statuses"].as_array().unwrap()
    }

    /// Returns the remaining units of each descriptor.
    pub(super) fn remaining(&self) -> Vec<u64> {
        let statuses = self.statuses().iter();
        statuses
            .map(|status| status["limit_remaining"].as_u64().unwrap())
            .collect()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let headers = self.0["response_headers_to_add"].as_array().unwrap();
        let header = headers.iter().find(|header| header["key"] == name)?;
        header["value"].as_str()
    }

    /// Returns the names of all headers.
    pub(super) fn header_names(&self) -> Vec<&str> {
        let headers = self.0["response_headers_to_add"].as_array().unwrap();
        headers
            .iter()
            .map(|header| header["key"].as_str().unwrap())
            .collect()
    }
}
