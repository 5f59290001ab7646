//! Lines of a stream of any length, without copying them.

use std::io::{self, Read};

/// The longest line that is read.
pub(super) const LONGEST: usize = 4 * 1024 * 1024;
const CHUNK: usize = 256 * 1024;

/// One line, without its end.
pub(super) enum Line<'a> {
    Text(&'a [u8]),
    /// Longer than [`LONGEST`]; it was passed over.
    TooLong,
}

/// Reads lines.
pub(super) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// What of the buffer is read and not yet given out.
    start: usize,
    end: usize,
    /// Up to where there is no line end.
    searched: usize,
    number: u64,
    bytes_read: u64,
    at_end: bool,
    skipping: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            searched: 0,
            number: 0,
            bytes_read: 0,
            at_end: false,
            skipping: false,
        }
    }

    /// The number of the line last given out, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Whether the next line is not yet there as a whole.
    pub(super) fn must_read(&mut self) -> bool {
        !self.at_end && self.find_end().is_none()
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            if let Some(end) = self.find_end() {
                let start = std::mem::replace(&mut self.start, end + 1);
                self.searched = self.start;
                return Ok(Some(self.give(start, end)));
            }
            if self.at_end {
                let (start, end) = (self.start, self.end);
                self.start = end;
                self.searched = end;
                let nothing = start == end && !self.skipping;
                return Ok((!nothing).then(|| self.give(start, end)));
            }
            if self.end - self.start > LONGEST {
                self.skipping = true;
                self.start = self.end;
                self.searched = self.end;
            }
            self.read_more()?;
        }
    }

    fn give(&mut self, start: usize, end: usize) -> Line<'_> {
        self.number += 1;
        if std::mem::take(&mut self.skipping) || end - start > LONGEST {
            return Line::TooLong;
        }
        Line::Text(&self.buffer[start..end])
    }

    fn find_end(&mut self) -> Option<usize> {
        let found = memchr::memchr(b'\n', &self.buffer[self.searched..self.end]);
        match found {
            Some(offset) => {
                self.searched += offset;
                Some(self.searched)
            }
            None => {
                self.searched = self.end;
                None
            }
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.searched -= self.start;
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

    /// Gives a few bytes at a time, as a pipe may.
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
        let mut lines = Lines::new(Dribble(input, at_once));
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(match line {
                Line::Text(text) => Some(text.to_vec()),
                Line::TooLong => None,
            });
        }
        all
    }

    #[test]
    fn lines_come_whole_however_they_arrive() {
        let expected = ["a", "", "bc", "d"].map(|line| Some(line.as_bytes().to_vec()));
        for at_once in 1..10 {
            assert_eq!(read(b"a\n\nbc\nd", at_once), expected);
            assert_eq!(read(b"a\n\nbc\nd\n", at_once), expected);
        }
        assert!(read(b"", 1).is_empty());
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let mut input = b"first\n".to_vec();
        input.extend(vec![b'x'; LONGEST + 10]);
        input.extend(b"\nlast\n");
        let lines = read(&input, CHUNK);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1], None);
        assert_eq!(lines[2].as_deref(), Some(&b"last"[..]));
    }
}
