//! Sends requests to a collector.

use std::time::Duration;

use quanta::Instant;
use tokio::time::timeout;

use super::post::Endpoint;
use crate::telemetry::clock;

/// How long sending a request may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often a failure to send is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A collector.
#[derive(Debug)]
pub(super) struct Collector {
    endpoint: Endpoint,
    /// What it is sent.
    what: &'static str,
    /// When a failure to send was last logged.
    last_logged: Option<Instant>,
}

impl Collector {
    pub(super) fn new(endpoint: Endpoint, what: &'static str) -> Self {
        Self {
            endpoint,
            what,
            last_logged: None,
        }
    }

    /// Sends a request once. Returns whether the collector accepted it; a failure is logged, but not
    /// too often.
    pub(super) async fn send(&mut self, body: String) -> bool {
        let sent = timeout(TIMEOUT, self.endpoint.post(body)).await;
        let error = match sent {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {} s", TIMEOUT.as_secs()),
        };
        let now = clock::now();
        let is_quiet = { self.last_logged }
            .is_some_and(|last| now.saturating_duration_since(last) < LOG_INTERVAL);
        if !is_quiet {
            self.last_logged = Some(now);
            let (to, what) = (&self.endpoint, self.what);
            tracing::warn!(%to, error, "cannot send {what}");
        }
        false
    }
}
