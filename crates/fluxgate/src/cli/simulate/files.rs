//! Opens the files of a simulation. No file may be both read and written.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use super::report_file::ReportFile;
use crate::cli::files::is_same_file;
use crate::failure::{Exit, Failure};

/// The recorded requests.
pub(super) struct Input {
    pub(super) reader: Box<dyn Read>,
    /// The size of a regular file.
    pub(super) size: Option<u64>,
}

/// Returns whether a path stands for standard input or output.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

pub(super) fn open_input(path: &Path) -> Result<Input, Failure> {
    if is_standard(path) {
        return Ok(Input {
            reader: Box::new(io::stdin().lock()),
            size: None,
        });
    }
    let failure = |error| failure(Exit::NoInput, path, error);
    let file = File::open(path).map_err(failure)?;
    let metadata = file.metadata().map_err(failure)?;
    Ok(Input {
        reader: Box::new(file),
        size: metadata.is_file().then_some(metadata.len()),
    })
}

/// Creates the file for the decisions, which must not be one of the `sources`.
pub(super) fn create_output(path: &Path, sources: &[&Path]) -> Result<Box<dyn Write>, Failure> {
    if is_standard(path) {
        return Ok(Box::new(io::stdout().lock()));
    }
    refuse_sources(path, sources)?;
    let file = File::create(path).map_err(|error| failure(Exit::Io, path, error))?;
    Ok(Box::new(file))
}

/// Creates the file for the report, which must be neither the `output` nor one of
/// the `sources`.
pub(super) fn create_report(
    path: &Path,
    output: &Path,
    sources: &[&Path],
) -> Result<ReportFile, Failure> {
    if is_standard(path) {
        let message = "--report needs a file; `-` is for the decisions";
        return Err(Failure::new(Exit::Io, message));
    }
    refuse_sources(path, sources)?;
    let metadata = if is_standard(output) {
        metadata_of(&io::stdout())
    } else {
        fs::metadata(output)
    };
    if path == output || is_same_file(path, metadata) {
        let problem = "cannot hold both the decisions and the report";
        return Err(failure(Exit::Io, path, problem));
    }
    ReportFile::create(path).map_err(|error| failure(Exit::Io, path, error))
}

/// Returns a failure that names the file.
pub(super) fn failure(exit: Exit, path: &Path, problem: impl fmt::Display) -> Failure {
    Failure::new(exit, format!("{}: {problem}", path.display()))
}

/// Refuses a path to write to that is one of the files to read.
fn refuse_sources(path: &Path, sources: &[&Path]) -> Result<(), Failure> {
    for source in sources {
        let metadata = if is_standard(source) {
            metadata_of(&io::stdin())
        } else {
            fs::metadata(source)
        };
        if is_same_file(path, metadata) {
            let problem = "would be overwritten while it is read; name another output";
            return Err(failure(Exit::Io, path, problem));
        }
    }
    Ok(())
}

fn metadata_of(stream: &impl AsFd) -> io::Result<Metadata> {
    let copy = stream.as_fd().try_clone_to_owned()?;
    File::from(copy).metadata()
}
