//! The file that a report goes to.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where a report goes. Nobody ever sees half of one: it is written beside its
/// place, and put there when it is whole.
#[derive(Debug)]
pub(super) struct ReportFile {
    file: File,
    /// Where it is written, and where it belongs; `None` where it is written in
    /// place, because that is a device or a pipe.
    rename: Option<(PathBuf, PathBuf)>,
}

impl ReportFile {
    /// Makes sure that it can be written before hours are spent on what is in it.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        // A link stays one.
        let place = match fs::canonicalize(path) {
            Ok(place) => place,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        match fs::metadata(&place) {
            Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(metadata) if !metadata.is_file() => {
                let file = File::options().write(true).open(&place)?;
                return Ok(Self { file, rename: None });
            }
            _ => {}
        }
        let name = place.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}.tmp", std::process::id()));
        let beside = place.with_file_name(beside);
        // What a process of the same number left behind; and never through a link.
        let _ = fs::remove_file(&beside);
        let file = File::create_new(&beside)?;
        Ok(Self {
            file,
            rename: Some((beside, place)),
        })
    }

    /// Writes all of it and puts it in its place.
    pub(super) fn write(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        if let Some((beside, place)) = self.rename.take() {
            let put = self.file.sync_all();
            let put = put.and_then(|()| fs::rename(&beside, &place));
            if put.is_err() {
                let _ = fs::remove_file(&beside);
            }
            put?;
        }
        Ok(())
    }
}

impl Drop for ReportFile {
    /// Leaves nothing behind of what was not put in its place.
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.rename {
            let _ = fs::remove_file(beside);
        }
    }
}
