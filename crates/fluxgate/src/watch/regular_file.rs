//! Regular files that are read whole, up to a size.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The largest config or rule file, in bytes.
pub(crate) const MAX_BYTES: u64 = 16 << 20;

/// Reads a file of at most `most` bytes. Links are followed.
///
/// Anything but a regular file is refused without waiting for it: a FIFO has no
/// end until its writer closes it, and some devices have none at all.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Opening a device can have effects of its own.
    check_kind(fs::metadata(path)?.file_type())?;
    let file = OpenOptions::new()
        .read(true)
        // It may have been replaced by a FIFO since, for which `open` would wait.
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    read_open(file, most)
}

/// Reads an open file, if it is a regular one.
fn read_open(file: File, most: u64) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    check_kind(metadata.file_type())?;
    let mut bytes = Vec::new();
    if metadata.len() <= most {
        // It may grow while it is read.
        file.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= most {
            return Ok(bytes);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("the file is larger than {most} bytes"),
    ))
}

fn check_kind(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let name = if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO or pipe"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "something else"
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("expected a regular file, found {name}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of so many bytes, which has no name.
    fn file_of(bytes: u64) -> File {
        let path = std::env::temp_dir().join(format!("fluxgate-{}-{bytes}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        fs::remove_file(&path).unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    #[test]
    fn a_file_may_be_as_large_as_the_bound_and_no_larger() {
        assert_eq!(read_open(file_of(10), 10).unwrap().len(), 10);
        let error = read_open(file_of(11), 10).unwrap_err();
        assert_eq!(error.to_string(), "the file is larger than 10 bytes");
    }

    #[test]
    fn a_file_whose_size_is_unknown_is_bounded_too() {
        // As one that grows: its size is said to be 0.
        let maps = File::open("/proc/self/maps").unwrap();
        assert_eq!(maps.metadata().unwrap().len(), 0);
        let error = read_open(maps, 100).unwrap_err();
        assert_eq!(error.to_string(), "the file is larger than 100 bytes");
    }

    #[test]
    fn what_is_open_is_looked_at_again() {
        let zero = File::open("/dev/zero").unwrap();
        let error = read_open(zero, MAX_BYTES).unwrap_err().to_string();
        assert_eq!(error, "expected a regular file, found a device");
    }
}
