//! RESP2 replies.

use std::io::{self, BufRead, Read};

/// A RESP2 reply.
///
/// The accessors panic on a reply of another type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A null bulk string or a null array.
    Nil,
    /// An integer.
    Int(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// A simple string.
    Simple(String),
    /// An error, with its code: `WRONGTYPE Operation …`.
    Error(String),
    /// An array.
    Array(Vec<Reply>),
}

impl Reply {
    /// Asserts that the reply is `OK`.
    #[track_caller]
    pub fn expect_ok(&self) {
        assert_eq!(self, &Self::Simple("OK".to_owned()));
    }

    /// Returns the integer.
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(int) => *int,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// Returns the text of a bulk or simple string.
    #[track_caller]
    pub fn text(&self) -> String {
        match self {
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Simple(text) => text.clone(),
            other => panic!("not a string: {other:?}"),
        }
    }

    /// Returns the bytes of a bulk string.
    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bytes) => bytes,
            other => panic!("not a bulk string: {other:?}"),
        }
    }

    /// Returns the elements of an array.
    #[track_caller]
    pub fn array(&self) -> &[Reply] {
        match self {
            Self::Array(replies) => replies,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// Returns the error, if the reply is one.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(error) => Some(error),
            _ => None,
        }
    }

    /// Returns whether the reply is null.
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let line = String::from_utf8_lossy(line);
        let kind = line.chars().next().unwrap_or('\n');
        let rest = line.get(1..).unwrap_or_default();
        let number = || rest.parse::<i64>().map_err(|_| invalid(&line));
        Ok(match kind {
            '+' => Self::Simple(rest.to_owned()),
            '-' => Self::Error(rest.to_owned()),
            ':' => Self::Int(number()?),
            '$' => match usize::try_from(number()?) {
                Err(_) => Self::Nil,
                Ok(length) => Self::Bulk(read_bulk(from, length)?),
            },
            '*' => match usize::try_from(number()?) {
                Err(_) => Self::Nil,
                Ok(count) => {
                    let replies = (0..count).map(|_| Self::read(from));
                    Self::Array(replies.collect::<io::Result<_>>()?)
                }
            },
            _ => return Err(invalid(&line)),
        })
    }
}

fn read_bulk(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

fn invalid(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP2: {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_parsed() {
        let mut wire: &[u8] =
            b"*7\r\n+OK\r\n-ERR no\r\n:-3\r\n$2\r\n\r\n\r\n$-1\r\n*-1\r\n*1\r\n$0\r\n\r\n";
        let expected = Reply::Array(vec![
            Reply::Simple("OK".to_owned()),
            Reply::Error("ERR no".to_owned()),
            Reply::Int(-3),
            Reply::Bulk(b"\r\n".to_vec()),
            Reply::Nil,
            Reply::Nil,
            Reply::Array(vec![Reply::Bulk(Vec::new())]),
        ]);
        assert_eq!(Reply::read(&mut wire).unwrap(), expected);
        assert!(wire.is_empty());
    }

    #[test]
    fn truncated_and_malformed_replies_are_errors() {
        for wire in ["", "+OK", "$5\r\nab", "*2\r\n:1\r\n", "?\r\n", ":x\r\n"] {
            assert!(Reply::read(&mut wire.as_bytes()).is_err(), "{wire:?}");
        }
    }
}
