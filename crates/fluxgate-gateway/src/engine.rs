//! What the gateway needs of the service that it runs in.

use std::sync::Arc;

use fluxgate_core::Decision;
use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_http::Handler;
use fluxgate_http::server::Origin;

use crate::llm::CallObserver;

/// Decides requests and records responses.
pub trait Engine: Send + Sync + 'static {
    /// Decides the requests of one filter.
    type Handler<'a>: Handler<Report = Decision, Rules = Option<ActiveRuleSet>>;

    /// Returns the handler for a request of this origin.
    fn handler<'a>(self: &'a Arc<Self>, origin: &'a Origin<'a>) -> Self::Handler<'a>;

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
