//! A client for the test itself: counts, statistics, settings.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::wait::WAIT_TIMEOUT;

/// One blocking RESP2 connection.
pub struct Cli {
    stream: BufReader<TcpStream>,
}

impl Cli {
    /// Connects to a server or a proxy. Replies time out after [`WAIT_TIMEOUT`].
    pub fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, WAIT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sets the timeout for replies.
    pub fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(timeout))
    }

    /// Sends a command and reads its reply, which may be an error reply.
    ///
    /// # Panics
    /// If the connection fails.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply {
        match self.try_command(arguments) {
            Ok(reply) => reply,
            Err(error) => panic!("{}: {error}", escaped(arguments)),
        }
    }

    /// Sends a command and reads its reply. Returns an error if the connection fails.
    pub fn try_command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Reply> {
        self.send(arguments)?;
        self.receive()
    }

    /// Sends a command without waiting for its reply.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        let mut wire = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            let argument = argument.as_ref();
            wire.extend(format!("${}\r\n", argument.len()).as_bytes());
            wire.extend(argument);
            wire.extend(b"\r\n");
        }
        self.send_raw(&wire)
    }

    /// Sends raw bytes.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads the next reply: to [`Cli::send`], or one that the server pushes, as after
    /// `MONITOR` and `SUBSCRIBE`.
    pub fn receive(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.stream)
    }

    /// Returns the number of keys in the database.
    #[track_caller]
    pub fn dbsize(&mut self) -> i64 {
        self.command(&["DBSIZE"]).int()
    }

    /// Returns a field of `INFO everything`, such as `used_memory`.
    #[track_caller]
    pub fn info(&mut self, field: &str) -> Option<String> {
        let info = self.command(&["INFO", "everything"]).text();
        field_of(&info, field)
    }

    /// Returns how often a command, in lower case, was called since the last
    /// `CONFIG RESETSTAT`. Calls from scripts count, calls that were rejected do not.
    #[track_caller]
    pub fn calls(&mut self, command: &str) -> u64 {
        let stats = self.info(&format!("cmdstat_{command}"));
        let calls = stats.and_then(|stats| {
            let calls = stats
                .split(',')
                .find_map(|part| part.strip_prefix("calls="))?;
            calls.parse().ok()
        });
        calls.unwrap_or(0)
    }

    /// Returns the keys that match a pattern, sorted.
    #[track_caller]
    pub fn keys(&mut self, pattern: &str) -> Vec<String> {
        let mut keys = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let reply = self.command(&["SCAN", &cursor, "MATCH", pattern, "COUNT", "1000"]);
            let [next, page] = reply.array() else {
                panic!("SCAN must reply two elements: {reply:?}");
            };
            keys.extend(page.array().iter().map(Reply::text));
            cursor = next.text();
            if cursor == "0" {
                break;
            }
        }
        // A scan may return a key twice.
        keys.sort();
        keys.dedup();
        keys
    }

    /// Returns the server's time in microseconds since 1970.
    #[track_caller]
    pub fn time_micros(&mut self) -> i64 {
        let reply = self.command(&["TIME"]);
        let part = |index: usize| -> i64 {
            let text = reply.array()[index].text();
            text.parse().expect("TIME replies two integers")
        };
        part(0) * 1_000_000 + part(1)
    }
}

impl fmt::Debug for Cli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cli").finish_non_exhaustive()
    }
}

/// Returns the value of a line `field:value`.
pub(crate) fn field_of(info: &str, field: &str) -> Option<String> {
    let value = |line: &str| Some(line.strip_prefix(field)?.strip_prefix(':')?.to_owned());
    info.lines().find_map(value)
}

fn escaped<A: AsRef<[u8]>>(arguments: &[A]) -> String {
    let escaped = |argument: &A| argument.as_ref().escape_ascii().to_string();
    arguments.iter().map(escaped).collect::<Vec<_>>().join(" ")
}

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
