//! Reads whole regular files up to a size. Every crate reads its files with this module.

#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// The largest config or rule file, in bytes.
pub const MAX_BYTES: u64 = 16 << 20;

/// Reads a file of at most `max_bytes`. Links are followed.
///
/// Anything but a regular file is refused without waiting for it: a FIFO has no
/// end until its writer closes it, and some devices have none at all.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    // Opening a device can have effects of its own.
    check_kind(fs::metadata(path)?.file_type())?;
    read_open(open(path)?, max_bytes)
}

/// Opens a file without waiting: it may have been replaced by a FIFO, whose `open` would block
/// until there is a writer.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    options.custom_flags(libc::O_NONBLOCK);
    options.read(true).open(path)
}

/// Reads an open file, if it is a regular one.
fn read_open(file: File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    check_kind(metadata.file_type())?;
    if metadata.len() > max_bytes {
        return Err(too_large(max_bytes));
    }
    read_bounded(file, max_bytes)
}

/// Reads at most `max_bytes` until the end. Also for a pipe, or a file that grows.
pub fn read_bounded(reader: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(too_large(max_bytes));
    }
    Ok(bytes)
}

fn too_large(max_bytes: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("the file is larger than {max_bytes} bytes"),
    )
}

fn check_kind(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let name = if kind.is_dir() {
        "a directory"
    } else {
        special_name(kind)
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("expected a regular file, found {name}"),
    ))
}

#[cfg(unix)]
fn special_name(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "a FIFO or pipe"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "something else"
    }
}

#[cfg(not(unix))]
fn special_name(_: FileType) -> &'static str {
    "something else"
}

#[cfg(unix)]
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

    #[test]
    fn a_fifo_that_replaces_the_file_is_refused_without_waiting_for_a_writer() {
        let path = std::env::temp_dir().join(format!("fluxgate-{}-fifo", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let expected = "expected a regular file, found a FIFO or pipe";
        let error = read(&path, MAX_BYTES).unwrap_err().to_string();
        assert_eq!(error, expected);
        // As if it had been a regular file a moment before.
        let opened = open(&path).and_then(|file| read_open(file, MAX_BYTES));
        fs::remove_file(&path).unwrap();
        assert_eq!(opened.unwrap_err().to_string(), expected);
    }
}
