//! Rules from a file.

use std::path::{Path, PathBuf};
use std::{fs, io};

use fluxgate_core::yaml::{Fault, Position};
use fluxgate_core::{RuleSets, RulesError};

/// Why a file gave no rules.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuleFileError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// What it says is wrong; one line a fault.
    #[error("{}", located(path, faults))]
    Invalid { path: PathBuf, faults: RulesError },
}

/// Reads and checks a rule file.
pub(crate) fn load(path: &Path) -> Result<RuleSets, RuleFileError> {
    let bytes = fs::read(path).map_err(|source| RuleFileError::Unreadable {
        path: path.into(),
        source,
    })?;
    let invalid = |faults| RuleFileError::Invalid {
        path: path.into(),
        faults,
    };
    let text =
        str::from_utf8(&bytes).map_err(|error| invalid(not_text(&bytes[..error.valid_up_to()])))?;
    RuleSets::from_yaml(text).map_err(invalid)
}

/// The fault right after what is good text.
fn not_text(good: &[u8]) -> RulesError {
    let good = String::from_utf8_lossy(good);
    let (line, last) = (good.matches('\n').count(), good.rsplit('\n').next());
    RulesError(vec![Fault {
        position: Position {
            line: line + 1,
            column: last.map_or(0, |last| last.chars().count()) + 1,
        },
        message: "not UTF-8".into(),
    }])
}

fn located(path: &Path, faults: &RulesError) -> String {
    let path = path.display();
    let lines = faults.0.iter().map(|fault| format!("{path}:{fault}"));
    lines.collect::<Vec<_>>().join("\n")
}
