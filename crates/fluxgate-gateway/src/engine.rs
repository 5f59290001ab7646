//! What the gateway needs of the service that it runs in.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::{Decision, RequestContext};
use fluxgate_http::Handler;
use fluxgate_http::server::Origin;

use crate::llm::CallObserver;
use crate::received_request::ConnectionInfo;

/// Decides requests and records responses.
pub trait Engine: Send + Sync + 'static {
    /// Decides the requests of one filter.
    type Handler<'a>: Handler<Report = Decision, Rules = Option<ActiveRuleSet>>;

    /// Returns the handler for a request of this origin.
    fn handler<'a>(self: &'a Arc<Self>, origin: &'a Origin<'a>) -> Self::Handler<'a>;

    /// Decides several calls of one request, which are charged together or not at all, and records
    /// the decisions. No rule delays them. `rules` is `None` if there is no rule set of this name.
    fn decide_all(
        &self,
        rule_set: &str,
        rules: Option<&ActiveRuleSet>,
        calls: &[RequestContext<'_>],
        origin: &Origin<'_>,
    ) -> impl Future<Output = Vec<Decision>> + Send;

    /// Returns whether requests can be decided: whether the rules are loaded.
    fn is_ready(&self) -> bool;

    /// Records a response.
    fn record_response(&self, status: u16, origin: &Origin<'_>);

    /// Returns what records calls to language models.
    fn call_observer(self: &Arc<Self>) -> Arc<dyn CallObserver>;

    /// Returns whether to log a request that was not forwarded. A flood of them must not
    /// become a flood of lines.
    fn should_log(&self) -> bool;
}

/// Receives every request when it has ended: for an access log and for traces.
pub trait RequestObserver: fmt::Debug + Send + Sync {
    /// Begins the span of a request, which came with this `traceparent`, if it is traced.
    fn begin_trace(&self, _traceparent: Option<&str>) -> Option<RequestTrace> {
        None
    }

    /// Records a request. Called by threads that serve requests, so it must not wait.
    fn request_ended(&self, request: &EndedRequest<'_>);
}

/// The span of a request that is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTrace {
    /// Names this span as the parent of what happens within the request, to the filters and to the
    /// upstream.
    pub traceparent: Box<str>,
    /// The id of the span that the sender of the request named.
    pub parent: [u8; 8],
}

/// A request whose response has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedRequest<'a> {
    /// What the request itself says.
    pub facts: RequestFacts<'a>,
    /// Its span, if it is traced.
    pub trace: Option<&'a RequestTrace>,
    /// The id of its route, if it has one.
    pub route: Option<&'a str>,
    /// The status of the response; 499 if the client disconnected before.
    pub status: u16,
    /// The bytes of the request's body.
    pub bytes_in: u64,
    /// The bytes of the response's body.
    pub bytes_out: u64,
    /// From the head of the request to the end of the response.
    pub took: Duration,
    /// The host and port of the upstream that was tried last.
    pub upstream: Option<&'a str>,
    /// How long that upstream took to begin its response, or to fail.
    pub upstream_took: Option<Duration>,
    /// How often the request was sent to an upstream.
    pub attempts: u32,
    /// The decision of the last filter that made one.
    pub decision: Option<&'a Decision>,
    /// Why there is no response of an upstream, or no complete one.
    pub error: Option<&'a str>,
}

/// What a request itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts<'a> {
    /// The method; empty if the request cannot be read.
    pub method: &'a str,
    /// The path as it was sent, without the query; empty if the request cannot be read.
    pub path: &'a str,
    /// The host, perhaps with a port; empty if it names none.
    pub host: &'a str,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub protocol: &'static str,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The address of the client, as the first filter of the route sees it.
    pub client_ip: Option<IpAddr>,
    /// `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// The id of the request.
    pub request_id: &'a str,
    /// `traceparent`: of its own span, if it has one.
    pub traceparent: Option<&'a str>,
}

impl<'a> RequestFacts<'a> {
    /// The facts of an HTTP/1 request that cannot be read.
    pub(crate) fn unreadable(origin: &'a Origin<'_>, client: &ConnectionInfo) -> Self {
        Self {
            method: "",
            path: "",
            host: "",
            protocol: "HTTP/1.1",
            scheme: client.scheme(),
            client_ip: Some(client.peer.ip()),
            user_agent: None,
            request_id: origin.request_id(),
            traceparent: None,
        }
    }
}
