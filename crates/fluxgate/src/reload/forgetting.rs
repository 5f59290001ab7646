//! Deleting what replaced rules must not leave behind.

use std::sync::Arc;

use fluxgate_core::RuleSets;
use tokio::sync::mpsc;

use crate::engine::Engine;

/// A task that deletes. It may take long, and nobody waits for it; what comes
/// meanwhile waits its turn.
#[derive(Debug)]
pub(super) struct Forgetting(mpsc::UnboundedSender<Arc<RuleSets>>);

impl Forgetting {
    pub(super) fn start(engine: &Arc<Engine>) -> Self {
        let (sender, mut waiting) = mpsc::unbounded_channel::<Arc<RuleSets>>();
        let engine = Arc::clone(engine);
        tokio::spawn(async move {
            while let Some(replaced) = waiting.recv().await {
                if let Err(error) = engine.reset_replaced(&replaced).await {
                    tracing::warn!(%error, "old state of changed rules could not be deleted");
                }
            }
        });
        Self(sender)
    }

    /// Deletes what these leave behind, after those before them.
    pub(super) fn add(&self, replaced: Arc<RuleSets>) {
        // Without the task the service is closing.
        let _ = self.0.send(replaced);
    }
}

/// Whether rules leave something behind that must be deleted.
pub(super) fn any_resets(rules: &RuleSets) -> bool {
    let mut rules = rules.iter().flat_map(|set| set.rules());
    rules.any(|rule| rule.reset_on_change())
}
