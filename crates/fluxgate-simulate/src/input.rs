//! Recorded requests, read from a stream of any length.

use std::io::{self, Read};

use crate::combined;
use crate::event::Event;

/// The longest line that is read, in bytes.
const MAX_LINE: usize = 4 * 1024 * 1024;
/// How many bytes are read at a time.
const CHUNK: usize = 4 * 1024 * 1024;

/// How requests are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    #[default]
    Ndjson,
    /// The access logs of Apache and nginx.
    Combined,
}

impl Format {
    /// Parses a line. Returns `None` if it is blank.
    pub(crate) fn parse(self, line: &[u8]) -> Option<Result<Event<'_>, String>> {
        if line.trim_ascii().is_empty() {
            return None;
        }
        if line.len() > MAX_LINE {
            return Some(Err(too_long()));
        }
        Some(match self {
            Self::Ndjson => Event::from_json(line),
            Self::Combined => combined::parse(line),
        })
    }
}

/// Returns the error about a line that is too long.
pub(crate) fn too_long() -> String {
    format!("longer than {MAX_LINE} bytes")
}

/// A part of the input.
pub(crate) enum Block<'a> {
    /// Whole lines. The last line of the input may lack its end.
    Lines(&'a [u8]),
    /// A line longer than [`MAX_LINE`], which was skipped.
    TooLong,
}

/// Returns the lines of a block, without their ends.
pub(crate) fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = block;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(line)
    })
}

/// Splits a stream into blocks. A block holds the lines that have arrived, so that a slow
/// stream does not wait until a block is full.
pub(crate) struct BlockReader<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The bytes that have been read but not returned.
    start: usize,
    end: usize,
    pub(crate) bytes_read: u64,
    at_end: bool,
}

impl<R: Read> BlockReader<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            bytes_read: 0,
            at_end: false,
        }
    }

    /// Reads the next block. Returns `None` at the end of the input.
    pub(crate) fn next(&mut self) -> io::Result<Option<Block<'_>>> {
        loop {
            let unread = &self.buffer[self.start..self.end];
            let whole = match memchr::memrchr(b'\n', unread) {
                Some(last) => last + 1,
                None if self.at_end => unread.len(),
                None => 0,
            };
            if whole > 0 {
                let start = self.start;
                self.start += whole;
                return Ok(Some(Block::Lines(&self.buffer[start..start + whole])));
            }
            if self.at_end {
                return Ok(None);
            }
            if unread.len() > MAX_LINE {
                self.skip_line()?;
                return Ok(Some(Block::TooLong));
            }
            self.read_more()?;
        }
    }

    /// Skips the rest of a line.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            self.start = self.end;
            self.read_more()?;
            let end = memchr::memchr(b'\n', &self.buffer[..self.end]);
            if let Some(end) = end {
                self.start = end + 1;
                return Ok(());
            }
            if self.at_end {
                self.start = self.end;
                return Ok(());
            }
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() - self.end < CHUNK / 2 {
            self.buffer.resize(self.buffer.len() + CHUNK, 0);
        }
        let read = loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.at_end = read == 0;
        self.end += read;
        self.bytes_read += read as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a few bytes at a time, as a pipe may.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(input: &[u8], at_once: usize) -> Vec<Option<Vec<u8>>> {
        let mut blocks = BlockReader::new(Dribble(input, at_once));
        let mut all = Vec::new();
        while let Some(block) = blocks.next().unwrap() {
            match block {
                Block::Lines(text) => all.extend(lines(text).map(|line| Some(line.to_vec()))),
                Block::TooLong => all.push(None),
            }
        }
        all
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let expected = ["a", "", "bc", "d"].map(|line| Some(line.as_bytes().to_vec()));
        for at_once in 1..10 {
            assert_eq!(read(b"a\n\nbc\nd", at_once), expected);
            assert_eq!(read(b"a\n\nbc\nd\n", at_once), expected);
        }
        assert!(read(b"", 1).is_empty());
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        for at_once in [64 * 1024, CHUNK] {
            let mut input = b"first\n".to_vec();
            input.extend(vec![b'x'; MAX_LINE + CHUNK + 10]);
            input.extend(b"\nlast\n");
            let lines = read(&input, at_once);
            assert_eq!(lines.len(), 3);
            assert_eq!(lines[1], None);
            assert_eq!(lines[2].as_deref(), Some(&b"last"[..]));
        }
    }
}
