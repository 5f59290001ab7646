//! Deletes the state of replaced rules.

use std::sync::Arc;

use fluxgate_core::RuleSets;
use tokio::sync::mpsc;

use crate::engine::Engine;

/// A background task that deletes the state of one replaced set of rules after another.
#[derive(Debug)]
pub(super) struct StaleStateCleaner(mpsc::UnboundedSender<Arc<RuleSets>>);

impl StaleStateCleaner {
    pub(super) fn start(engine: &Arc<Engine>) -> Self {
        let (sender, mut queue) = mpsc::unbounded_channel::<Arc<RuleSets>>();
        let engine = Arc::clone(engine);
        tokio::spawn(async move {
            while let Some(replaced) = queue.recv().await {
                if let Err(error) = engine.reset_replaced(&replaced).await {
                    tracing::warn!(%error, "old state of changed rules could not be deleted");
                }
            }
        });
        Self(sender)
    }

    /// Queues replaced rules.
    pub(super) fn add(&self, replaced: Arc<RuleSets>) {
        // The task ends only when the service closes.
        let _ = self.0.send(replaced);
    }
}

/// Returns whether any of the rules has state to delete.
pub(super) fn has_resets(rules: &RuleSets) -> bool {
    let mut rules = rules.iter().flat_map(|set| set.rules());
    rules.any(|rule| rule.reset_on_change())
}
