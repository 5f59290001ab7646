//! A minimal HTTP/1.1 client that shows responses exactly as they are.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::wait::WAIT_TIMEOUT;

/// A client with one connection, which is opened on demand and reused.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
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
            stream: None,
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
        if self.stream.is_none() {
            let stream = TcpStream::connect_timeout(&self.address, WAIT_TIMEOUT)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
            self.stream = Some(BufReader::new(stream));
        }
        let stream = self.stream.as_mut().expect("the stream was just connected");
        let sent = stream.get_mut().write_all(bytes);
        if sent.is_err() {
            self.stream = None;
        }
        sent
    }

    /// Reads the next response.
    pub fn read_answer(&mut self, without_body: bool) -> std::io::Result<Answer> {
        let Some(stream) = &mut self.stream else {
            return Err(std::io::ErrorKind::NotConnected.into());
        };
        let answer = read(stream, without_body);
        let is_last = |answer: &Answer| answer.header("connection") == Some("close");
        if answer.as_ref().map_or(true, is_last) {
            self.stream = None;
        }
        answer
    }
}

fn read(stream: &mut BufReader<TcpStream>, without_body: bool) -> std::io::Result<Answer> {
    let invalid =
        |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
    let line = read_line(stream)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| invalid(&format!("no status in {line:?}")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| invalid("a header without a colon"))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut answer = Answer {
        status,
        headers,
        body: String::new(),
    };
    let mut body = Vec::new();
    if without_body || matches!(status, 100..200 | 204 | 304) {
        return Ok(answer);
    }
    if let Some(length) = answer.header("content-length") {
        let length = length
            .parse()
            .map_err(|_| invalid("an invalid content-length"))?;
        body.resize(length, 0);
        stream.read_exact(&mut body)?;
    } else if answer.header("transfer-encoding") == Some("chunked") {
        loop {
            let size = usize::from_str_radix(&read_line(stream)?, 16)
                .map_err(|_| invalid("an invalid chunk size"))?;
            let start = body.len();
            body.resize(start + size, 0);
            stream.read_exact(&mut body[start..])?;
            read_line(stream)?;
            if size == 0 {
                break;
            }
        }
    } else {
        stream.read_to_end(&mut body)?;
    }
    answer.body = String::from_utf8(body).map_err(|_| invalid("a body that is not UTF-8"))?;
    Ok(answer)
}

fn read_line(stream: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
