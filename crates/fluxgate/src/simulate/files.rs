//! What is read and what is written, and that the one is not the other.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fluxgate_core::RuleSets;

use super::report::Report;
use super::{Options, cannot_report};
use crate::cli::{Exit, Failure};

/// Where the recorded requests come from.
pub(super) struct Input {
    pub(super) reader: Box<dyn Read>,
    /// The size of a file, where it is one.
    pub(super) size: Option<u64>,
}

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
    let failure =
        |error: io::Error| Failure::new(Exit::NoInput, format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(failure)?;
    let metadata = file.metadata().map_err(failure)?;
    Ok(Input {
        reader: Box::new(file),
        size: metadata.is_file().then_some(metadata.len()),
    })
}

pub(super) fn create_output(options: &Options) -> Result<Box<dyn Write>, Failure> {
    let path = &options.output;
    if is_standard(path) {
        return Ok(Box::new(io::stdout().lock()));
    }
    refuse_overwriting(path, options)?;
    match File::create(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(Failure::new(
            Exit::Io,
            format!("{}: {error}", path.display()),
        )),
    }
}

/// The report, if one is wanted, and if nothing that is read or written stands
/// in its place.
pub(super) fn create_report(
    options: &Options,
    rules: &RuleSets,
) -> Result<Option<Report>, Failure> {
    let Some(path) = &options.report else {
        return Ok(None);
    };
    if is_standard(path) {
        let message = "--report needs a file; `-` is for the decisions";
        return Err(Failure::new(Exit::Io, message));
    }
    refuse_overwriting(path, options)?;
    let output = match is_standard(&options.output) {
        true => metadata_of(&io::stdout()),
        false => fs::metadata(&options.output),
    };
    if *path == options.output || is_file_of(path, output) {
        let path = path.display();
        let message = format!("{path}: cannot hold both the decisions and the report");
        return Err(Failure::new(Exit::Io, message));
    }
    let report = Report::new(path, rules);
    report
        .map(Some)
        .map_err(|error| cannot_report(path, &error))
}

/// Refuses to write to what is read.
fn refuse_overwriting(path: &Path, options: &Options) -> Result<(), Failure> {
    for read in [&options.input, &options.rules] {
        let read = match is_standard(read) {
            true => metadata_of(&io::stdin()),
            false => fs::metadata(read),
        };
        if is_file_of(path, read) {
            let path = path.display();
            return Err(Failure::new(
                Exit::Io,
                format!("{path}: would be overwritten while it is read; name another output"),
            ));
        }
    }
    Ok(())
}

/// Whether a path names the file of which something is known, by whatever path,
/// link or redirection.
fn is_file_of(path: &Path, known: io::Result<Metadata>) -> bool {
    let Ok(file) = fs::metadata(path) else {
        return false;
    };
    // Writing to a terminal or a device destroys nothing that is still to be read.
    known.is_ok_and(|known| file.is_file() && file_id(&file) == file_id(&known))
}

fn metadata_of(stream: &impl AsFd) -> io::Result<Metadata> {
    let copy = stream.as_fd().try_clone_to_owned()?;
    File::from(copy).metadata()
}

fn file_id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
