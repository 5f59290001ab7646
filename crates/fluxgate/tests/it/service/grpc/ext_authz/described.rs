//! A request as Envoy describes it, and the answer.

use serde_json::{Value, json};

use crate::service::grpc::client::{self, Client};

/// A request of a client.
#[derive(Clone, Debug)]
pub(super) struct Described {
    call: Value,
}

impl Described {
    /// A request from 192.0.2.1, with headers in a map.
    pub(super) fn new(method: &str, path: &str) -> Self {
        let call = json!({
            "call": "authorize",
            "method": method,
            "path": path,
            "source": "192.0.2.1",
            "headers": [],
        });
        Self { call }
    }

    pub(super) fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.call[name] = value.into();
        self
    }

    /// Adds a line of a header.
    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        let headers = self.call["headers"].as_array_mut().unwrap();
        headers.push(json!([name.to_lowercase(), value]));
        self
    }

    /// Sends the headers line by line.
    pub(super) fn raw(self) -> Self {
        self.with("raw", true)
    }

    pub(super) fn host(self, host: &str) -> Self {
        self.with("host", host)
    }

    pub(super) fn source(self, address: &str) -> Self {
        self.with("source", address)
    }

    pub(super) fn filter(self, name: &str) -> Self {
        self.with("filter", name)
    }

    /// A call without a request over HTTP.
    pub(super) fn without_http(self) -> Self {
        self.with("http", false)
    }

    /// Cancels the call after so many seconds.
    pub(super) fn timeout(self, seconds: u32) -> Self {
        self.with("timeout", seconds)
    }

    pub(super) fn metadata(self, name: &str, value: &str) -> Self {
        self.with("metadata", json!({ name: value }))
    }

    /// Starts the call.
    pub(super) fn start(&self, client: &mut Client) {
        client.send(&self.call);
    }

    #[track_caller]
    pub(super) fn send(&self, client: &mut Client) -> Answer {
        let result = client.call(&self.call);
        assert!(result["code"].is_u64(), "{self:?}: {result}");
        Answer(result)
    }

    /// Returns the code and the message of the error.
    #[track_caller]
    pub(super) fn error(&self, client: &mut Client) -> (String, String) {
        client::error(&client.call(&self.call))
    }
}

/// The answer.
#[derive(Clone, Debug)]
pub(super) struct Answer(pub(super) Value);

impl Answer {
    /// Returns the status of the response to the client; 0 if the request may pass.
    pub(super) fn status(&self) -> u64 {
        self.0["status"].as_u64().unwrap()
    }

    /// Returns the code of gRPC.
    pub(super) fn code(&self) -> u64 {
        self.0["code"].as_u64().unwrap()
    }

    /// Returns the names and values of the headers for the client.
    pub(super) fn headers(&self) -> Vec<(&str, &str)> {
        let headers = self.0["headers"].as_array().unwrap().iter();
        let headers =
            headers.map(|header| (header[0].as_str().unwrap(), header[1].as_str().unwrap()));
        headers.collect()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let headers = self.headers();
        let header = headers.into_iter().find(|(known, _)| *known == name)?;
        Some(header.1)
    }

    pub(super) fn body(&self) -> &str {
        self.0["body"].as_str().unwrap()
    }

    /// Returns the body as JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(self.body()).unwrap()
    }
}
