//! Decisions when the store fails.

use std::sync::OnceLock;

use crate::decision::Decision;
use crate::memory::MemoryStore;
use crate::rules::OnError;
use crate::store::{Checks, LocalStore, Verdicts};

/// Decides when the store fails. The embedded store that it may need is created then.
#[derive(Debug, Default)]
pub(super) struct Fallback(OnceLock<MemoryStore>);

/// The decision after the store failed.
pub(crate) enum FallbackDecision {
    /// The same for every request.
    Fixed(Decision),
    /// The verdicts of the embedded store.
    Local(Verdicts),
}

impl Fallback {
    pub(super) fn decide(&self, on_error: OnError, checks: &Checks<'_>) -> FallbackDecision {
        match on_error {
            OnError::Allow => FallbackDecision::Fixed(Decision::failed_open()),
            OnError::Deny => FallbackDecision::Fixed(Decision::failed_closed()),
            OnError::Local => {
                let store = self.0.get_or_init(MemoryStore::default);
                FallbackDecision::Local(store.decide_now(checks))
            }
        }
    }

    /// Returns the embedded store, once it was needed. It knows only what it charged itself
    /// while the store failed.
    pub(super) fn store(&self) -> Option<&MemoryStore> {
        self.0.get()
    }
}
