//! Which requests are tried again.

use std::time::Duration;

use crate::config::RetryConfig;
use crate::error::GatewayError;
use crate::routes::Route;

/// How far back the budget looks.
const BUDGET_WINDOW: Duration = Duration::from_secs(10);

/// A request that may be tried again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry<'r> {
    config: &'r RetryConfig,
    route: &'r Route,
    /// Whether it may be sent again, by its method and because its body is kept.
    is_repeatable: bool,
}

impl<'r> Retry<'r> {
    /// Returns how a request of this route is tried again, if the route says so. `is_kept` says
    /// whether its body can be sent again.
    pub(super) fn of(route: &'r Route, request: &[u8], is_kept: bool) -> Option<Self> {
        let config = route.retry.as_ref()?;
        let method = method_of(request);
        Some(Self {
            config,
            route,
            is_repeatable: is_kept && config.methods.iter().any(|known| known == method),
        })
    }

    /// Returns whether to try again after `attempts`, if the last one failed.
    pub(super) fn permits_after(self, attempts: u32, error: &GatewayError, is_sent: bool) -> bool {
        let on = &self.config.on;
        let is_kind = match error {
            _ if !is_sent => on.connect,
            GatewayError::NoResponse(_) => on.reset,
            _ => false,
        };
        let is_listed = is_kind || on.statuses.contains(&error.status().as_u16());
        // What was not sent may be sent, whatever it is.
        is_listed && (self.is_repeatable || !is_sent) && self.has_budget(attempts)
    }

    /// Returns whether to try again after `attempts`, if the last one got a response with this
    /// status.
    pub(super) fn permits_instead(self, attempts: u32, status: u16) -> bool {
        let is_listed = self.config.on.statuses.contains(&status);
        is_listed && self.is_repeatable && self.has_budget(attempts)
    }

    /// Returns whether another attempt may follow so many.
    pub(super) fn has_attempts(self, attempts: u32) -> bool {
        attempts < self.config.attempts
    }

    fn has_budget(self, attempts: u32) -> bool {
        if !self.has_attempts(attempts) {
            return false;
        }
        let [responses, retries] = self.route.counts.recent(BUDGET_WINDOW);
        // This request has no response yet.
        retries < self.config.budget.reached_at(responses + 1)
    }
}

/// Returns the method of a request, with which its head begins.
fn method_of(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|byte| *byte == b' ');
    std::str::from_utf8(&bytes[..end.unwrap_or(0)]).unwrap_or_default()
}
