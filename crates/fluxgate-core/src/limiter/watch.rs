//! Rules that follow a file or another source.

#[cfg(feature = "yaml")]
mod file;

use std::fmt;

use tokio::task::{AbortHandle, JoinHandle};

use super::Limiter;
use crate::store::Store;
#[cfg(feature = "yaml")]
pub use file::RuleFileError;

/// Keeps the rules of a limiter up to date until it is dropped. Bind it to a name such as
/// `_watch`: `let _ =` drops it at once.
#[must_use = "the rules are no longer updated once this is dropped; bind it to a name such as `_watch`"]
pub struct RuleWatch(AbortHandle);

impl RuleWatch {
    /// Watches as long as this task runs.
    pub fn new(task: &JoinHandle<()>) -> Self {
        Self(task.abort_handle())
    }
}

impl Drop for RuleWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for RuleWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleWatch").finish_non_exhaustive()
    }
}

impl<S: Store + 'static> Limiter<S> {
    /// Reports that new rules are active, or why not.
    pub fn observe_rules(&self, loaded: Result<(), &(dyn std::error::Error + 'static)>) {
        for observer in &self.0.observers {
            observer.rules_changed(loaded);
        }
    }
}
