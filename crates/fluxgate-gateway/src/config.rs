//! The configuration of a gateway.

mod rewrite;
mod upstream_care;

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::path::PathSet;
use fluxgate_http::Filter;
use fluxgate_llm::Reserve;

pub use rewrite::{CorsConfig, HeaderEdits, HeaderTest, HostRewrite, RewriteConfig};
pub use upstream_care::{HealthConfig, RetryConfig, RetryOn};

/// What the gateway forwards, and within which bounds.
#[derive(Clone, Debug)]
pub struct Config {
    /// The routes. The first that matches a request applies.
    pub routes: Vec<RouteConfig>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How large and how many things may be.
    pub limits: Limits,
    /// The most memory for bodies of calls that are read before they are forwarded, in bytes.
    pub llm_buffer: u64,
}

/// The requests of a route, the filters that limit them and the upstreams that answer them.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// The unique name of the route.
    pub id: String,
    /// The requests that the route is for.
    pub matches: RouteMatch,
    /// The upstreams; at least one.
    pub upstreams: Vec<UpstreamConfig>,
    /// The active health check of the upstreams, if there is one.
    pub health: Option<HealthConfig>,
    /// Which requests are tried again. By default those that were certainly not sent, once with
    /// each upstream.
    pub retry: Option<RetryConfig>,
    /// How long things may take, where it differs from the gateway.
    pub timeouts: RouteTimeouts,
    /// The size of the body of a request, if it differs from the gateway.
    pub body_bytes: Option<RouteBodyLimit>,
    /// How the target and the host are changed.
    pub rewrite: RewriteConfig,
    /// Headers that are set or removed in requests.
    pub request_headers: HeaderEdits,
    /// Headers that are set or removed in responses of upstreams.
    pub response_headers: HeaderEdits,
    /// Which pages of other sites may use the route, if the gateway decides that.
    pub cors: Option<CorsConfig>,
    /// The filters, in the order in which they evaluate a request.
    pub filters: Vec<Arc<Filter>>,
    /// How calls to language models are counted, if they are.
    pub llm: Option<LlmConfig>,
    /// How calls of the Model Context Protocol are read, if they are.
    pub mcp: Option<McpConfig>,
}

/// The largest body with messages of the Model Context Protocol, which is read as a whole.
pub const MAX_MCP_BODY: u64 = 1024 * 1024;

/// How the calls of a route of the Model Context Protocol are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpConfig {
    /// The index of the filter of the route that limits them.
    pub filter: usize,
}

/// The largest body of a call to a language model, which is read as a whole, if there is no
/// other limit.
pub const MAX_CALL_BODY: u64 = 32 * 1024 * 1024;

/// How the calls of a route to language models are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlmConfig {
    /// The index of the filter of the route that counts their tokens.
    pub filter: usize,
    /// How tokens are bounded before they are known.
    pub reserve: Reserve,
    /// What becomes of requests that may use tokens, but are no known calls.
    pub unknown: UnknownCalls,
    /// What a call costs whose client leaves before the answer has ended.
    pub on_abort: OnAbort,
}

/// What becomes of requests that may use tokens, but are no known calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownCalls {
    /// They cost this many tokens, and are not settled.
    Cost(u64),
    /// They cost no tokens.
    Allow,
    /// They are answered with 404.
    Deny,
}

/// What a call costs whose client leaves before the answer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnAbort {
    /// What was seen until then.
    #[default]
    Seen,
    /// What was reserved, or what was seen if that is more.
    Reserved,
}

/// The requests that a route is for: all conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct RouteMatch {
    /// One of these paths; `None` matches all.
    pub paths: Option<Arc<PathSet>>,
    /// One of these hosts; an empty list matches all.
    pub hosts: Vec<HostPattern>,
    /// One of these methods, which are case-sensitive; an empty list matches all.
    pub methods: Vec<String>,
    /// What each of these headers must be. Names are in lower case.
    pub headers: Vec<(Box<str>, HeaderTest)>,
}

/// A pattern of hosts, in lower case and without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// This host.
    Exact(String),
    /// Hosts with this suffix, which begins with a dot.
    Suffix(String),
}

impl HostPattern {
    /// Returns whether a host (without its port) matches.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(known) => host.eq_ignore_ascii_case(known),
            Self::Suffix(suffix) => {
                let start = host.len().checked_sub(suffix.len());
                let end = start
                    .filter(|start| *start > 0)
                    .and_then(|at| host.get(at..));
                end.is_some_and(|end| end.eq_ignore_ascii_case(suffix))
            }
        }
    }

    /// Parses a host such as `api.example.com`, `*.example.com` or `[::1]`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        if text.starts_with('[') {
            let address = text.strip_prefix('[')?.strip_suffix(']')?;
            return address
                .parse::<std::net::Ipv6Addr>()
                .is_ok()
                .then_some(Self::Exact(text));
        }
        let is_host = |name: &str| {
            !name.is_empty()
                && name.len() <= 253
                && name.split('.').all(|label| {
                    !label.is_empty()
                        && label
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
                })
        };
        match text.strip_prefix('*') {
            Some(suffix) => {
                let name = suffix.strip_prefix('.')?;
                is_host(name).then(|| Self::Suffix(suffix.into()))
            }
            None => is_host(&text).then_some(Self::Exact(text)),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
        }
    }
}

/// Where requests are forwarded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamTarget {
    /// The gateway itself: it answers with a description of the request.
    Echo,
    /// An HTTP server.
    Http {
        /// How to speak to the server.
        scheme: UpstreamScheme,
        /// The name or address of the server; an IPv6 address is in brackets.
        host: String,
        /// The port of the server.
        port: u16,
        /// For `https`: the authorities of the server's certificate, in PEM, if they are not those
        /// of the system.
        ca: Option<Arc<[u8]>>,
    },
}

/// An upstream of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Where requests are forwarded to.
    pub target: UpstreamTarget,
    /// Its share of the requests, in proportion to those of the other upstreams; at least 1.
    pub weight: u32,
}

impl From<UpstreamTarget> for UpstreamConfig {
    fn from(target: UpstreamTarget) -> Self {
        Self { target, weight: 1 }
    }
}

/// How to speak to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamScheme {
    /// `http`: HTTP/1.1 over TCP.
    Http,
    /// `h2c`: HTTP/2 over TCP, which the server is known to speak.
    H2c,
    /// `https`: HTTP/2 or HTTP/1.1 over TLS, as the server chooses.
    Https,
}

impl UpstreamScheme {
    /// Returns the name that URLs begin with.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::H2c => "h2c",
            Self::Https => "https",
        }
    }
}

impl UpstreamTarget {
    /// Returns the host and port of a server.
    pub(crate) fn host(&self) -> Option<String> {
        match self {
            Self::Echo => None,
            Self::Http { host, port, .. } => Some(format!("{host}:{port}")),
        }
    }

    /// Returns the host as requests name it, with the port unless it is that of the scheme.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Echo => "echo".to_owned(),
            Self::Http {
                scheme, host, port, ..
            } => {
                let default = if *scheme == UpstreamScheme::Https {
                    443
                } else {
                    80
                };
                if *port == default {
                    host.clone()
                } else {
                    format!("{host}:{port}")
                }
            }
        }
    }
}

impl fmt::Display for UpstreamTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo => f.write_str("echo"),
            Self::Http {
                scheme, host, port, ..
            } => {
                write!(f, "{}://{host}:{port}", scheme.name())
            }
        }
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Connecting to an upstream.
    pub connect: Duration,
    /// Receiving the head of a request.
    pub headers: Duration,
    /// Between two requests of a connection, and between two parts of a body.
    pub idle: Duration,
    /// From a request to the head of its response.
    pub request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            headers: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            request: Duration::from_secs(30),
        }
    }
}

/// How long things may take on a route, where it differs from the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteTimeouts {
    /// Connecting to an upstream.
    pub connect: Option<Duration>,
    /// Between two parts of a body.
    pub idle: Option<Duration>,
    /// From a request to the head of its response.
    pub request: Option<Duration>,
}

impl RouteTimeouts {
    /// Returns the timeouts of the route in a gateway with these.
    pub(crate) fn within(self, gateway: Timeouts) -> Timeouts {
        Timeouts {
            connect: self.connect.unwrap_or(gateway.connect),
            idle: self.idle.unwrap_or(gateway.idle),
            request: self.request.unwrap_or(gateway.request),
            ..gateway
        }
    }
}

/// The size of the body of a request on a route: a bound, or none.
pub type RouteBodyLimit = Option<NonZeroU64>;

/// How large and how many things may be; `None` is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size of the head of a request.
    pub header_bytes: Option<NonZeroU64>,
    /// The size of the body of a request.
    pub body_bytes: Option<NonZeroU64>,
    /// Connections of clients at a time.
    pub connections: Option<NonZeroU64>,
    /// Connections to upstreams at a time, idle ones included.
    pub upstream_connections: Option<NonZeroU64>,
    /// Concurrent streams of an HTTP/2 connection.
    pub streams: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_addresses_or_suffixes() {
        let good = [
            "api.example.com",
            "*.example.com",
            "LOCALHOST",
            "127.0.0.1",
            "[::1]",
        ];
        for text in good {
            let host = HostPattern::parse(text).map(|host| host.to_string());
            assert_eq!(host, Some(text.to_lowercase()));
        }
        for text in [
            "", "*", "*.", "a..b", "a:80", "http://a", "a*.b", "[::1]:80", "a b",
        ] {
            assert_eq!(HostPattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_suffix_matches_longer_names_only() {
        let wild = HostPattern::parse("*.example.com").unwrap();
        assert!(wild.matches("API.example.com") && wild.matches("a.b.example.com"));
        assert!(!wild.matches("example.com") && !wild.matches(".example.com"));
        assert!(!wild.matches("badexample.com") && !wild.matches("é"));
    }
}
