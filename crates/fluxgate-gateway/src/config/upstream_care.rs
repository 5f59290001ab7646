//! How a route takes care of its upstreams.

use std::time::Duration;

use fluxgate_core::Percent;

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
