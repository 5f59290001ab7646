//! The Redis protocol.

use std::fmt::Write as _;

/// The version of the protocol of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

/// A reply of a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Status(&'static str),
    /// The code and the message.
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
    /// Keys and values in turn.
    Map(Vec<Reply>),
    /// A message to a subscriber.
    Push(Vec<Reply>),
}

impl Reply {
    pub(crate) const OK: Self = Self::Status("OK");

    pub(crate) fn error(text: &str) -> Self {
        Self::Error(text.to_owned())
    }

    pub(crate) fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    /// Returns the number of items of a collection.
    pub(crate) fn count(count: usize) -> Self {
        // Far below 2^63.
        Self::Int(count as i64)
    }

    /// Appends it to what a connection sends.
    pub(crate) fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let mut line = |first: char, text: &dyn std::fmt::Display| {
            let mut head = String::new();
            // Writing to a string does not fail.
            let _ = write!(head, "{first}{text}\r\n");
            out.extend_from_slice(head.as_bytes());
        };
        match self {
            Self::Status(text) => line('+', text),
            Self::Error(text) => line('-', text),
            Self::Int(number) => line(':', number),
            Self::Bulk(bytes) => {
                line('$', &bytes.len());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Nil if protocol == Protocol::Resp3 => out.extend_from_slice(b"_\r\n"),
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::Array(items) => {
                line('*', &items.len());
                items.iter().for_each(|item| item.encode(protocol, out));
            }
            Self::Push(items) => {
                let first = if protocol == Protocol::Resp3 {
                    '>'
                } else {
                    '*'
                };
                line(first, &items.len());
                items.iter().for_each(|item| item.encode(protocol, out));
            }
            Self::Map(items) if protocol == Protocol::Resp3 => {
                line('%', &(items.len() / 2));
                items.iter().for_each(|item| item.encode(protocol, out));
            }
            Self::Map(items) => {
                line('*', &items.len());
                items.iter().for_each(|item| item.encode(protocol, out));
            }
        }
    }
}

/// Takes the first command out of what a connection has received; `None` if it is incomplete.
pub(crate) fn parse_command(received: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut at = 0;
    let count = read_number(received, &mut at, b'*')?;
    let mut command = Vec::with_capacity(count);
    for _ in 0..count {
        let size = read_number(received, &mut at, b'$')?;
        let bytes = received.get(at..at + size)?;
        command.push(bytes.to_vec());
        at += size + 2;
    }
    if at > received.len() {
        return None;
    }
    received.drain(..at);
    Some(command)
}

fn read_number(bytes: &[u8], at: &mut usize, first: u8) -> Option<usize> {
    let rest = bytes.get(*at..)?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(rest[0], first, "the client sends arrays of bulk strings");
    let text = std::str::from_utf8(&rest[1..end]).ok()?;
    *at += end + 2;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_parsed_once_they_are_whole() {
        let whole = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n";
        for cut in 0..20 {
            assert_eq!(parse_command(&mut whole[..cut].to_vec()), None, "{cut}");
        }
        let mut received = whole.to_vec();
        let get: Vec<Vec<u8>> = vec![b"GET".into(), b"k".into()];
        assert_eq!(parse_command(&mut received), Some(get));
        assert_eq!(parse_command(&mut received), Some(vec![b"PING".into()]));
        assert!(received.is_empty());
    }
}
