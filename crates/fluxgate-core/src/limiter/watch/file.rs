//! A rule file that changes.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::regular_file;
use crate::rules::{RuleSets, RulesError};

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

/// A rule file that is read again and again.
pub(super) struct RuleFile {
    path: PathBuf,
    /// The text that was read last; `None` if the file could not be read.
    last: Option<String>,
}

impl RuleFile {
    /// Reads the file for the first time.
    pub(super) async fn open(path: PathBuf) -> Result<(Self, RuleSets), RuleFileError> {
        let text = read(&path).await?;
        let rules = parse(&path, &text)?;
        let last = Some(text);
        Ok((Self { path, last }, rules))
    }

    /// Waits until the text changes, or can no longer be read, and returns the new rules.
    pub(super) async fn changed(&mut self) -> Result<RuleSets, RuleFileError> {
        loop {
            tokio::time::sleep(POLL).await;
            match read(&self.path).await {
                Ok(text) if self.last.as_ref() == Some(&text) => {}
                Ok(text) => {
                    let rules = parse(&self.path, &text);
                    self.last = Some(text);
                    return rules;
                }
                Err(_) if self.last.is_none() => {}
                Err(error) => {
                    self.last = None;
                    return Err(error);
                }
            }
        }
    }
}

/// Reads a file without blocking the runtime.
async fn read(path: &Path) -> Result<String, RuleFileError> {
    let owned = path.to_owned();
    let read = move || {
        let bytes = regular_file::read(&owned, regular_file::MAX_BYTES)?;
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    };
    let text = tokio::task::spawn_blocking(read)
        .await
        .unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
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
