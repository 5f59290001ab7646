//! Reads rule files and the text of config files.

use std::io;
use std::path::{Path, PathBuf};

use fluxgate_core::regular_file::MAX_BYTES;
use fluxgate_core::yaml::{Fault, Position};
use fluxgate_core::{RulesError, regular_file};

/// A file that cannot be read or is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleFileError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The content is invalid. Displays one line per fault.
    #[error("{}", located(path, faults))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All faults.
        faults: RulesError,
    },
}

/// Reads a file, which must be UTF-8.
pub(crate) fn read_text(path: &Path) -> Result<String, RuleFileError> {
    let bytes =
        regular_file::read(path, MAX_BYTES).map_err(|source| RuleFileError::Unreadable {
            path: path.into(),
            source,
        })?;
    decode_utf8(path, bytes)
}

/// Decodes the content of a file, which must be UTF-8.
pub(crate) fn decode_utf8(path: &Path, bytes: Vec<u8>) -> Result<String, RuleFileError> {
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        invalid(path, not_utf8_after(good))
    })
}

pub(crate) fn invalid(path: &Path, faults: RulesError) -> RuleFileError {
    RuleFileError::Invalid {
        path: path.into(),
        faults,
    }
}

/// Returns the fault at the position after the valid text.
fn not_utf8_after(good: &[u8]) -> RulesError {
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
