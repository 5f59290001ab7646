//! A minimal HTTP/1.1 client that shows responses exactly as they are.

use std::io::{ErrorKind, Read as _, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::wait::WAIT_TIMEOUT;
use crate::wire::{Read, WireAnswer};

/// A client with one connection, which is opened on demand and reused.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    client: Option<RawClient>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// Returns the first header with a name, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }
}

impl Http {
    /// Creates a client of a server. Does not connect yet.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            client: None,
        }
    }

    /// Sends `GET path`.
    pub fn get(&mut self, path: &str) -> Answer {
        self.request("GET", path, &[], "")
    }

    /// Sends `POST path` with a JSON body.
    pub fn post(&mut self, path: &str, json: &str) -> Answer {
        self.request("POST", path, &[("Content-Type", "application/json")], json)
    }

    /// Sends a request.
    ///
    /// # Panics
    /// If there is no response.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let answer = self.try_request(method, path, headers, body);
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Sends a request. Returns an error if there is no response.
    pub fn try_request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> std::io::Result<Answer> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.address);
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() || method != "GET" {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        self.send_raw(format!("{head}\r\n{body}").as_bytes())?;
        self.read_answer(method == "HEAD")
    }

    /// Sends raw bytes.
    pub fn send_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.client.is_none() {
            self.client = Some(RawClient::try_connect(self.address)?);
        }
        if let Some(client) = &mut self.client {
            client.send(bytes);
        }
        Ok(())
    }

    /// Reads the next response.
    pub fn read_answer(&mut self, without_body: bool) -> std::io::Result<Answer> {
        let Some(client) = &mut self.client else {
            return Err(std::io::ErrorKind::NotConnected.into());
        };
        let answer = client.read_answer_to(if without_body { "HEAD" } else { "GET" });
        if answer.as_ref().map_or(true, WireAnswer::is_last) {
            self.client = None;
        }
        let answer = answer?;
        let body = String::from_utf8(answer.body).map_err(std::io::Error::other)?;
        Ok(Answer {
            status: answer.status,
            headers: answer.headers,
            body,
        })
    }
}

/// One connection.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    /// Received bytes that are not parsed yet.
    bytes: Vec<u8>,
    ended: bool,
    read_timeout: Duration,
}

impl RawClient {
    /// Connects.
    ///
    /// # Panics
    /// If the connection fails.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("connect to a server")
    }

    /// Connects. Returns an error if that fails.
    pub fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, WAIT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
        stream.set_write_timeout(Some(WAIT_TIMEOUT))?;
        Ok(Self {
            stream,
            bytes: Vec::new(),
            ended: false,
            read_timeout: WAIT_TIMEOUT,
        })
    }

    /// Sets how long a read waits for bytes.
    pub fn set_read_timeout(&mut self, timeout: Duration) {
        let set = self.stream.set_read_timeout(Some(timeout));
        set.expect("set a timeout");
        self.read_timeout = timeout;
    }

    /// Sends bytes. Ignores a closed connection, because earlier responses can still be read.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // Reading shows the error.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends each byte in a packet of its own.
    pub fn send_byte_by_byte(&mut self, bytes: impl AsRef<[u8]>) {
        for byte in bytes.as_ref() {
            self.send([*byte]);
        }
    }

    /// Closes the sending direction.
    pub fn finish(&mut self) {
        // The peer may have closed the connection.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends a request without a body and reads the response.
    ///
    /// # Errors
    /// As [`RawClient::read_answer`].
    pub fn get(&mut self, target: &str) -> std::io::Result<WireAnswer> {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        self.read_answer()
    }

    /// Reads the next response, which may be an interim one.
    ///
    /// # Errors
    /// If the connection ends before the response is complete, on timeout, or if the response
    /// is ambiguous.
    pub fn read_answer(&mut self) -> std::io::Result<WireAnswer> {
        self.read_answer_to("GET")
    }

    /// Reads the next response to a request with this method.
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

    /// Reads until the connection ends.
    ///
    /// # Errors
    /// On timeout.
    pub fn read_to_end(&mut self) -> std::io::Result<Vec<u8>> {
        while !self.ended {
            self.read_more()?;
        }
        Ok(std::mem::take(&mut self.bytes))
    }

    /// Returns the bytes that are not parsed yet, and the stream.
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
