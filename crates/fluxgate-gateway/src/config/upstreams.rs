//! The upstreams of a route, and how much care is taken of them.

use std::num::NonZeroU64;
use std::time::Duration;

use fluxgate_core::Percent;

use super::{Timeouts, UpstreamTarget};

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

/// The active health check of the upstreams of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// The path that is requested.
    pub path: String,
    /// How often.
    pub interval: Duration,
    /// How long a check may take.
    pub timeout: Duration,
    /// After how many successes in a row an upstream is back.
    pub healthy: u32,
    /// After how many failures in a row an upstream is out.
    pub unhealthy: u32,
    /// The status of a success.
    pub status: u16,
}

/// Which requests of a route are tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// How often a request is tried in all.
    pub attempts: u32,
    /// What is tried again.
    pub on: RetryOn,
    /// The methods that may be tried again after they were sent.
    pub methods: Vec<String>,
    /// How many retries there may be, as a share of the requests of the last ten seconds.
    pub budget: Percent,
}

/// Which failures are tried again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryOn {
    /// The upstream cannot be reached, or the request was not sent.
    pub connect: bool,
    /// The connection ended before the response.
    pub reset: bool,
    /// Responses with these statuses, and failures that the gateway answers with them.
    pub statuses: Vec<u16>,
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
