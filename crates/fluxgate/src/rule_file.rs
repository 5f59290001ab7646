//! Rules from a file.

use std::path::{Path, PathBuf};
use std::{fs, io};

use fluxgate_core::{RuleSets, RulesError};

/// Why a file gave no rules.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuleFileError {
    /// It cannot be read, or is no text.
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// What it says is wrong; one line a fault.
    #[error("{}", located(path, faults))]
    Invalid { path: PathBuf, faults: RulesError },
}

/// Reads and checks a rule file.
pub(crate) fn load(path: &Path) -> Result<RuleSets, RuleFileError> {
    let text = fs::read_to_string(path).map_err(|source| RuleFileError::Unreadable {
        path: path.into(),
        source,
    })?;
    RuleSets::from_yaml(&text).map_err(|faults| RuleFileError::Invalid {
        path: path.into(),
        faults,
    })
}

fn located(path: &Path, faults: &RulesError) -> String {
    let path = path.display();
    let lines = faults.0.iter().map(|fault| format!("{path}:{fault}"));
    lines.collect::<Vec<_>>().join("\n")
}
