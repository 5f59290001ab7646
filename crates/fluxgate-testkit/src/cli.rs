//! A client for the test itself: counts, statistics, settings.

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::reply::Reply;
use crate::wait::WAIT_TIMEOUT;

/// One blocking RESP2 connection.
pub struct Cli {
    stream: BufReader<Stream>,
}

impl Cli {
    /// Connects to a server or a proxy. Replies time out after [`WAIT_TIMEOUT`].
    pub fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, WAIT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        Self::new(Stream::Tcp(stream))
    }

    /// Connects to a Unix socket.
    pub fn connect_unix(path: &Path) -> io::Result<Self> {
        Self::new(Stream::Unix(UnixStream::connect(path)?))
    }

    fn new(stream: Stream) -> io::Result<Self> {
        let mut cli = Self {
            stream: BufReader::new(stream),
        };
        cli.set_timeout(WAIT_TIMEOUT)?;
        Ok(cli)
    }

    /// Sets the timeout for replies.
    pub fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        match self.stream.get_ref() {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
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
        match self.stream.get_mut() {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
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

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
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
