//! Rules that follow a file or another source.

#[cfg(feature = "yaml")]
mod file;

use std::fmt;

use tokio::task::{AbortHandle, JoinHandle};

use super::Limiter;
use crate::store::Store;
#[cfg(feature = "yaml")]
use file::RuleFile;
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
    /// Tells the observers that new rules are active, or why not.
    pub fn observe_rules(&self, loaded: Result<(), &(dyn std::error::Error + 'static)>) {
        self.observe(|observer| observer.rules_changed(loaded));
    }

    /// Loads a rule file, and loads it again within about a second of each change, until the
    /// returned value is dropped. A later version that is not valid is reported to the
    /// [`Observer`](crate::Observer), and the last good one stays active.
    ///
    /// ```no_run
    /// # use fluxgate_core::{Limiter, MemoryStore, RuleFileError, RuleSets};
    /// # async fn run() -> Result<(), RuleFileError> {
    /// let limiter = Limiter::new(RuleSets::default(), MemoryStore::default());
    /// let _watch = limiter.watch_file("rules.yaml").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It must be called in a Tokio runtime.
    #[cfg(feature = "yaml")]
    pub async fn watch_file(
        &self,
        path: impl Into<std::path::PathBuf>,
    ) -> Result<RuleWatch, RuleFileError> {
        let (mut file, rules) = RuleFile::open(path.into()).await?;
        // The state of replaced rules expires by itself if the store fails.
        let _ = self.replace_rules(rules).await;
        let limiter = self.clone();
        let task = tokio::spawn(async move {
            loop {
                match file.changed().await {
                    Ok(rules) => {
                        let _ = limiter.replace_rules(rules).await;
                        limiter.observe_rules(Ok(()));
                    }
                    Err(error) => limiter.observe_rules(Err(&error)),
                }
            }
        });
        Ok(RuleWatch::new(&task))
    }
}
