//! The file that a report is written to.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
    pub(super) fn create(path: &Path) -> io::Result<Self> {
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
