//! Active health checks: a request to each upstream of a route now and then.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::{AbortHandle, JoinSet};

use crate::active_config::ActiveConfig;

use crate::config::{HealthConfig, Timeouts, UpstreamTarget};
use crate::error::GatewayError;
use crate::forward::Forwarder;
use crate::routes::Route;
use crate::upstream::Upstream;

/// The running checks of all upstreams. They end when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct HealthChecks {
    tasks: JoinSet<()>,
    /// By the route and the number of the server.
    running: HashMap<(Box<str>, usize), RunningCheck>,
}

#[derive(Debug)]
struct RunningCheck {
    settings: CheckSettings,
    task: AbortHandle,
}

/// How an upstream is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CheckSettings {
    config: HealthConfig,
    timeouts: Timeouts,
}

/// The checks of one upstream of a route.
#[derive(Debug)]
pub(crate) struct HealthCheck {
    settings: CheckSettings,
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

impl HealthChecks {
    /// Starts the checks that these routes name, and ends all others. Those that stay the same go
    /// on, and so does what they know.
    pub(crate) fn follow<F>(&mut self, routes: &[Arc<Route>], run: impl Fn(HealthCheck) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut before = std::mem::take(&mut self.running);
        for route in routes {
            for upstream in route.upstreams.upstreams() {
                let key = (route.id.clone(), upstream.number);
                // A route may name an upstream twice.
                if self.running.contains_key(&key) {
                    continue;
                }
                let Some(check) = HealthCheck::of(route, upstream) else {
                    if let Some(ended) = before.remove(&key) {
                        ended.task.abort();
                        upstream.check_removed();
                    }
                    continue;
                };
                let running = match before.remove(&key) {
                    Some(running) if running.settings == check.settings => running,
                    other => {
                        if let Some(other) = other {
                            other.task.abort();
                        }
                        RunningCheck {
                            settings: check.settings.clone(),
                            task: self.tasks.spawn(run(check)),
                        }
                    }
                };
                self.running.insert(key, running);
            }
        }
        for removed in before.into_values() {
            removed.task.abort();
        }
        while self.tasks.try_join_next().is_some() {}
    }
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
        let settings = CheckSettings {
            timeouts: Timeouts {
                connect: config.timeout,
                request: config.timeout,
                ..route.timeouts
            },
            config,
        };
        Some(Self {
            settings,
            upstream: Arc::clone(upstream),
            request: request.into(),
            results: Results {
                // By the checks before these.
                is_out: upstream.of_route.is_failing(),
                ..Results::default()
            },
        })
    }

    /// Checks the upstream until this is dropped. `active` returns the active configuration.
    pub(crate) async fn run<E>(mut self, active: impl Fn() -> Arc<ActiveConfig<E>>) {
        let mut interval = tokio::time::interval(self.settings.config.interval);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let result = self.check(&active().forwarder).await;
            match self.results.add(result.is_ok(), &self.settings.config) {
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
        } = self.settings.config;
        let timeouts = &self.settings.timeouts;
        let sent = forwarder.check(&self.upstream, &self.request, timeouts);
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
