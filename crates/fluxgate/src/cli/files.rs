//! Files that several commands read or write.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns whether a path leads to the regular file with this metadata, by any path, link or
/// redirection. Writing to a terminal or a device destroys nothing that is still to be read.
pub(super) fn is_same_file(path: &Path, other: io::Result<Metadata>) -> bool {
    let id = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    let (Ok(file), Ok(other)) = (fs::metadata(path), other) else {
        return false;
    };
    file.is_file() && id(&file) == id(&other)
}
