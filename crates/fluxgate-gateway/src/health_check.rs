//! Active health checks: a request to each upstream of a route now and then.

use std::sync::Arc;

use crate::config::{HealthConfig, Timeouts, UpstreamTarget};
use crate::error::GatewayError;
use crate::forward::Forwarder;
use crate::routes::Route;
use crate::upstream::Upstream;

/// The checks of one upstream of a route.
#[derive(Debug)]
pub(crate) struct HealthCheck {
    config: HealthConfig,
    timeouts: Timeouts,
    upstream: Arc<Upstream>,
    request: Vec<u8>,
    results: Results,
}

/// The last results of checks.
#[derive(Debug, Default)]
struct Results {
    /// How many of the last results were the same.
    streak: u32,
    /// Whether they were successes.
    are_good: bool,
    /// Whether the upstream is out by them.
    is_out: bool,
}

impl HealthCheck {
    /// Returns the checks of an upstream, if its route has any.
    pub(crate) fn of(route: &Route, upstream: &Arc<Upstream>) -> Option<Self> {
        let config = route.health.clone()?;
        let host = match &upstream.target {
            UpstreamTarget::Echo => return None,
            target => target.authority(),
        };
        let path = &config.path;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: fluxgate\r\naccept: */*\r\n\r\n"
        );
        Some(Self {
            timeouts: Timeouts {
                connect: config.timeout,
                request: config.timeout,
                ..route.timeouts
            },
            config,
            upstream: Arc::clone(upstream),
            request: request.into(),
            results: Results::default(),
        })
    }

    /// Checks the upstream until this is dropped.
    pub(crate) async fn run(mut self, forwarder: &Forwarder) {
        let mut interval = tokio::time::interval(self.config.interval);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let result = self.check(forwarder).await;
            match self.results.add(result.is_ok(), &self.config) {
                Some(true) => self.upstream.check_succeeded(),
                Some(false) => self.upstream.check_failed(result.err().unwrap_or_default()),
                None => {}
            }
        }
    }

    /// Sends one request. Returns why the upstream is not healthy.
    async fn check(&self, forwarder: &Forwarder) -> Result<(), String> {
        let HealthConfig {
            timeout, status, ..
        } = self.config;
        let sent = forwarder.check(&self.upstream, &self.request, &self.timeouts);
        let sent = tokio::time::timeout(timeout, sent).await;
        let why = match sent.unwrap_or(Err(GatewayError::ResponseTimeout)) {
            Ok(got) if got == status => return Ok(()),
            Ok(got) => format!("the status is {got}, not {status}"),
            Err(error) => error.with_cause(),
        };
        Err(format!("the health check fails: {why}"))
    }
}

impl Results {
    /// Adds a result. Returns whether the upstream is up now, if that has been confirmed often
    /// enough and was not known.
    fn add(&mut self, is_good: bool, config: &HealthConfig) -> Option<bool> {
        if self.are_good != is_good {
            self.streak = 0;
        }
        self.are_good = is_good;
        self.streak = self.streak.saturating_add(1);
        let needed = if is_good {
            config.healthy
        } else {
            config.unhealthy
        };
        if self.is_out != is_good || self.streak < needed {
            return None;
        }
        self.is_out = !is_good;
        Some(is_good)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_change_needs_as_many_results_in_a_row_as_configured() {
        let config = HealthConfig {
            path: "/".into(),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            healthy: 2,
            unhealthy: 3,
            status: 200,
        };
        let mut results = Results::default();
        let changes: Vec<_> = "gbbgbbbbgbggbbg"
            .chars()
            .enumerate()
            .filter_map(|(index, result)| Some((index, results.add(result == 'g', &config)?)))
            .collect();
        assert_eq!(changes, [(6, false), (11, true)]);
    }
}
