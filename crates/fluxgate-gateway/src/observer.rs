//! What the gateway reports of its upstreams.

use std::fmt;

/// Receives upstreams that go out, and that come back.
pub trait UpstreamObserver: fmt::Debug + Send + Sync {
    /// Records a change. Called rarely, but by threads that serve requests, so it must not wait.
    fn upstream_changed(&self, change: &UpstreamChange<'_>);
}

/// An upstream has gone out, or has come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamChange<'a> {
    /// The route whose request or check noticed it.
    pub route: &'a str,
    /// The host and port of the upstream.
    pub upstream: &'a str,
    /// Why it is out; `None` if it is back.
    pub reason: Option<&'a str>,
}

/// What takes an upstream out, as metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectionCause {
    /// No connection could be made.
    Connect,
    /// A connection or a response took too long.
    Timeout,
    /// The connection ended before the response.
    Reset,
    /// The response was not valid.
    Response,
    /// The active health check failed.
    Check,
}

impl EjectionCause {
    /// All causes, in the order of their declaration.
    pub const ALL: [Self; 5] = [
        Self::Connect,
        Self::Timeout,
        Self::Reset,
        Self::Response,
        Self::Check,
    ];

    /// Returns the name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Response => "response",
            Self::Check => "check",
        }
    }
}
