//! The files of a simulation. No file may be both read and written.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::cli::input::is_same_file;
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

/// A file that is replaced as a whole: the report is written to a temporary file
/// beside it, which is renamed when it is complete.
#[derive(Debug)]
pub(super) struct ReportFile {
    file: File,
    /// The temporary file and the path it is renamed to; `None` for a device or a
    /// pipe, which is written in place.
    rename: Option<(PathBuf, PathBuf)>,
}

impl ReportFile {
    /// Creates the temporary file.
    fn create(path: &Path) -> io::Result<Self> {
        // A link stays a link: its target is replaced.
        let target = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        match fs::metadata(&target) {
            Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(metadata) if !metadata.is_file() => {
                let file = File::options().write(true).open(&target)?;
                return Ok(Self { file, rename: None });
            }
            _ => {}
        }
        let name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = target.with_file_name(temporary);
        // A process with the same id may have left one behind. `create_new` does not
        // follow links.
        let _ = fs::remove_file(&temporary);
        let file = File::create_new(&temporary)?;
        Ok(Self {
            file,
            rename: Some((temporary, target)),
        })
    }

    /// Writes the report and moves it to its path.
    pub(super) fn write(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        if let Some((temporary, target)) = &self.rename {
            self.file.sync_all()?;
            fs::rename(temporary, target)?;
            self.rename = None;
        }
        Ok(())
    }
}

impl Drop for ReportFile {
    /// Removes the temporary file if it was not renamed.
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.rename {
            let _ = fs::remove_file(temporary);
        }
    }
}
