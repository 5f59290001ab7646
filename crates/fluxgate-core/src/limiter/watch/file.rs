//! Rules that follow a file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::RuleWatch;
use crate::limiter::Limiter;
use crate::regular_file;
use crate::rules::{RuleSets, RulesError};
use crate::store::Store;

/// How often a file is read. A file that is replaced by a rename or through a symbolic link
/// is noticed like any other.
const POLL: Duration = Duration::from_secs(1);

/// Why rules were not loaded. The last good ones stay active.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleFileError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The rules are not valid.
    #[error("{path}:\n{faults}", path = .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All faults.
        faults: RulesError,
    },
}

impl<S: Store + 'static> Limiter<S> {
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
    pub async fn watch_file(&self, path: impl Into<PathBuf>) -> Result<RuleWatch, RuleFileError> {
        let path = path.into();
        let text = read(&path).await?;
        // The state of replaced rules expires by itself if the store fails.
        let _ = self.replace_rules(parse(&path, &text)?).await;
        // What was read last; `None` if the file could not be read.
        let mut last = Some(text);
        let limiter = self.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(POLL).await;
                let loaded = match read(&path).await {
                    Ok(text) if last.as_ref() == Some(&text) => continue,
                    Ok(text) => {
                        let rules = parse(&path, &text);
                        last = Some(text);
                        rules
                    }
                    Err(_) if last.is_none() => continue,
                    Err(error) => {
                        last = None;
                        Err(error)
                    }
                };
                match loaded {
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

/// Reads a file without blocking the runtime.
async fn read(path: &Path) -> Result<String, RuleFileError> {
    let owned = path.to_owned();
    let read = move || {
        let bytes = regular_file::read(&owned, regular_file::MAX_BYTES)?;
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    };
    let text = tokio::task::spawn_blocking(read).await;
    let text = text.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
    text.map_err(|error| RuleFileError::Unreadable {
        path: path.to_owned(),
        error,
    })
}

fn parse(path: &Path, text: &str) -> Result<RuleSets, RuleFileError> {
    RuleSets::from_yaml(text).map_err(|faults| RuleFileError::Invalid {
        path: path.to_owned(),
        faults,
    })
}
