//! A client that sends just the bytes it is given.

use std::io::{ErrorKind, Read as _, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::wait::WAIT_TIMEOUT;
use crate::wire::{Read, WireAnswer};

/// One connection.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    /// What has come and is not used up.
    bytes: Vec<u8>,
    ended: bool,
    patience: Duration,
}

impl RawClient {
    /// Connects.
    ///
    /// # Panics
    /// If nobody listens.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("connect to a server")
    }

    /// Connects, if somebody listens.
    pub fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
        stream.set_write_timeout(Some(WAIT_TIMEOUT))?;
        Ok(Self {
            stream,
            bytes: Vec::new(),
            ended: false,
            patience: WAIT_TIMEOUT,
        })
    }

    /// Waits for so long at most for bytes to come.
    pub fn set_read_timeout(&mut self, patience: Duration) {
        let set = self.stream.set_read_timeout(Some(patience));
        set.expect("set a time limit");
        self.patience = patience;
    }

    /// Sends bytes. That the other side has closed is no error: what it said
    /// before may still be read.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The answer tells, or the missing of it.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends bytes, each in a packet of its own.
    pub fn send_byte_by_byte(&mut self, bytes: impl AsRef<[u8]>) {
        for byte in bytes.as_ref() {
            self.send([*byte]);
        }
    }

    /// Sends no more.
    pub fn finish(&mut self) {
        // It may have been closed from the other side.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends a request without a body and reads its answer.
    ///
    /// # Errors
    /// As [`RawClient::read_answer`].
    pub fn get(&mut self, target: &str) -> std::io::Result<WireAnswer> {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        self.read_answer()
    }

    /// Reads the next answer, which may be an interim one.
    ///
    /// # Errors
    /// If the connection ends before a whole answer has come, nothing comes for
    /// long, or it is an answer that can be read in two ways.
    pub fn read_answer(&mut self) -> std::io::Result<WireAnswer> {
        self.read_answer_to("GET")
    }

    /// The same for a request with this method.
    ///
    /// # Errors
    /// As [`RawClient::read_answer`].
    pub fn read_answer_to(&mut self, method: &str) -> std::io::Result<WireAnswer> {
        loop {
            let read = WireAnswer::read(&self.bytes, method, self.ended);
            match read.map_err(|bad| self.error(ErrorKind::InvalidData, &bad.0))? {
                Read::Whole(answer, used) => {
                    self.bytes.drain(..used);
                    return Ok(answer);
                }
                Read::Part if self.ended => {
                    return Err(self.error(ErrorKind::UnexpectedEof, "ended"));
                }
                Read::Part => self.read_more()?,
            }
        }
    }

    /// Everything that still comes until the connection ends.
    ///
    /// # Errors
    /// If it does not end for long.
    pub fn read_to_end(&mut self) -> std::io::Result<Vec<u8>> {
        while !self.ended {
            self.read_more()?;
        }
        Ok(std::mem::take(&mut self.bytes))
    }

    /// Whether the other side has closed, and nothing else has come.
    pub fn has_ended(&mut self) -> bool {
        let quick = self.stream.set_read_timeout(Some(Duration::from_millis(1)));
        quick.expect("set a time limit");
        let _ = self.read_more();
        self.set_read_timeout(self.patience);
        self.ended && self.bytes.is_empty()
    }

    /// The connection itself; what has come already stands in front.
    pub fn into_stream(self) -> (Vec<u8>, TcpStream) {
        (self.bytes, self.stream)
    }

    fn read_more(&mut self) -> std::io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.ended = true,
            Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.ended = true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(self.error(error.kind(), &error.to_string())),
        }
        Ok(())
    }

    fn error(&self, kind: ErrorKind, what: &str) -> std::io::Error {
        let bytes = &self.bytes[..self.bytes.len().min(300)];
        std::io::Error::new(
            kind,
            format!("{what}, after {:?}", bytes.escape_ascii().to_string()),
        )
    }
}
