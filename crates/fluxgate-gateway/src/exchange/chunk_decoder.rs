//! Decodes the chunks of a response body.

use fluxgate_http::server::is_token;

/// The longest line before a chunk: its size and extensions.
const MAX_LINE: usize = 1024;
/// The size of all trailers together.
const MAX_TRAILERS: usize = 16 * 1024;
/// The most digits of a size.
const MAX_DIGITS: usize = 15;

/// Decodes chunks as they arrive.
#[derive(Debug)]
pub(crate) struct ChunkDecoder {
    state: State,
    /// The bytes of the line, or of the trailers, so far.
    seen: usize,
    /// The trailers, if they are kept.
    trailers: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The digits of a size, and how many there were.
    Size {
        size: u64,
        digits: usize,
    },
    /// The rest of the size's line, up to the carriage return.
    Extension {
        size: u64,
    },
    /// The line feed after a size.
    SizeEnds {
        size: u64,
    },
    /// The content; `left` bytes of it are missing.
    Content {
        left: u64,
    },
    /// The line end after the content.
    ContentEnds,
    ContentEnded,
    /// The name of a trailer.
    TrailerName {
        is_empty: bool,
    },
    TrailerValue,
    TrailerEnds,
    /// The line feed after the empty line.
    LastLineEnds,
    End,
}

/// The bytes are not a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadChunk;

impl ChunkDecoder {
    /// Decodes a body from its beginning.
    pub(crate) fn new(keeps_trailers: bool) -> Self {
        Self {
            state: State::Size { size: 0, digits: 0 },
            seen: 0,
            trailers: keeps_trailers.then(Vec::new),
        }
    }

    /// Returns the trailers as they were sent, with the empty line at their end.
    pub(crate) fn trailers(&self) -> &[u8] {
        self.trailers.as_deref().unwrap_or_default()
    }

    /// Returns whether the last chunk and all trailers have been read.
    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::End
    }

    /// Decodes the next bytes. Passes every piece of the content to `content`; returns how
    /// many bytes were read, which is fewer than all only at the end of the body.
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        mut content: impl FnMut(&[u8]),
    ) -> Result<usize, BadChunk> {
        let mut at = 0;
        while at < bytes.len() && !self.has_ended() {
            if let State::Content { left } = self.state {
                let rest = &bytes[at..];
                let count = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                content(&rest[..count]);
                at += count;
                let left = left - count as u64;
                self.state = match left {
                    0 => State::ContentEnds,
                    _ => State::Content { left },
                };
            } else {
                self.state = self.next(bytes[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    /// Reads a byte that is not content.
    fn next(&mut self, byte: u8) -> Result<State, BadChunk> {
        self.seen += 1;
        let is_trailer = matches!(
            self.state,
            State::TrailerName { .. }
                | State::TrailerValue
                | State::TrailerEnds
                | State::LastLineEnds
        );
        let max = if is_trailer { MAX_TRAILERS } else { MAX_LINE };
        if self.seen > max {
            return Err(BadChunk);
        }
        if let Some(trailers) = self.trailers.as_mut().filter(|_| is_trailer) {
            trailers.push(byte);
        }
        let is_text = byte == b'\t' || (b' '..0x7f).contains(&byte) || byte >= 0x80;
        Ok(match (self.state, byte) {
            (State::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == MAX_DIGITS {
                    return Err(BadChunk);
                }
                let digit = char::from(byte).to_digit(16).ok_or(BadChunk)?;
                State::Size {
                    size: size << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (State::Size { digits: 0, .. }, _) => return Err(BadChunk),
            (State::Size { size, .. }, b'\r') => State::SizeEnds { size },
            (State::Size { size, .. }, b';' | b' ' | b'\t') => State::Extension { size },
            (State::Extension { size }, b'\r') => State::SizeEnds { size },
            (State::Extension { size }, _) if is_text => State::Extension { size },
            (State::SizeEnds { size: 0 }, b'\n') => {
                self.begin(State::TrailerName { is_empty: true })
            }
            (State::SizeEnds { size }, b'\n') => self.begin(State::Content { left: size }),
            (State::ContentEnds, b'\r') => State::ContentEnded,
            (State::ContentEnded, b'\n') => self.begin(State::Size { size: 0, digits: 0 }),
            (State::TrailerName { is_empty: true }, b'\r') => State::LastLineEnds,
            (State::TrailerName { is_empty: false }, b':') => State::TrailerValue,
            (State::TrailerName { .. }, _) if is_token(byte) => {
                State::TrailerName { is_empty: false }
            }
            (State::TrailerValue, b'\r') => State::TrailerEnds,
            (State::TrailerValue, _) if is_text => State::TrailerValue,
            (State::TrailerEnds, b'\n') => State::TrailerName { is_empty: true },
            (State::LastLineEnds, b'\n') => State::End,
            _ => return Err(BadChunk),
        })
    }

    fn begin(&mut self, state: State) -> State {
        self.seen = 0;
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::decode_chunks as read;

    #[test]
    fn content_is_the_same_however_the_bytes_are_split() {
        let bytes = b"5\r\nhello\r\n00A;x=\"y\"\r\n, world..!\r\n0\r\nA: b\r\n\r\nHTTP";
        for size in 1..bytes.len() {
            let read = read(bytes, size).unwrap();
            assert_eq!(read, (b"hello, world..!".to_vec(), bytes.len() - 4, true));
        }
        for end in 0..bytes.len() - 4 {
            assert!(!read(&bytes[..end], 7).unwrap().2, "{end}");
        }
    }

    #[test]
    fn malformed_chunks_are_errors() {
        for bad in [
            &b"\r\n"[..],
            b"x\r\n",
            b"-1\r\n",
            b"0x5\r\n",
            b"+5\r\n",
            b" 5\r\n",
            b"5\n",
            b"5\r5",
            b"5;\n",
            b"5\r\nhelloX",
            b"5\r\nhello\n",
            b"1000000000000000\r\n",
            b"0\r\n\n",
            b"0\r\na\n",
            b"0\r\na\x00\r\n",
            b"0\r\na\r\n",
            b"0\r\n: a\r\n",
            b"0\r\n a: b\r\n",
            b"0\r\na: b\r\n c\r\n",
            b"0\r\na: b\x00\r\n",
        ] {
            assert_eq!(read(bad, 3), None, "{bad:?}");
        }
        let long = [b"5;".to_vec(), vec![b'a'; MAX_LINE]].concat();
        assert_eq!(read(&long, 100), None);
        let many = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(MAX_TRAILERS / 6 + 1)].concat();
        assert_eq!(read(&many, 100), None);
    }
}
