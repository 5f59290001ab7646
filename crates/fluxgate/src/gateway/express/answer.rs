//! The head of what an upstream answers.

use std::mem::MaybeUninit;
use std::time::SystemTime;

use crate::http::{content_length, write_date};

const MOST_HEADERS: usize = 100;

/// The head of an answer that can be read in one way only.
#[derive(Debug)]
pub(super) struct AnswerHead<'a> {
    pub(super) status: u16,
    reason: &'a str,
    headers: Headers<'a>,
    pub(super) framing: Framing,
    /// Whether the connection may be used again after the body.
    pub(super) keeps_alive: bool,
    /// Whether it says when it was made.
    has_date: bool,
    /// How long the head is.
    pub(super) length: usize,
}

type Headers<'a> = smallvec::SmallVec<[(&'a str, &'a [u8]); 16]>;

/// Where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none, whatever the headers say.
    None,
    /// After so many bytes.
    Length(u64),
    /// Where its chunks say so.
    Chunked,
    /// Where the connection ends.
    UntilClose,
}

/// Why there is no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoHead {
    /// It goes on.
    Incomplete,
    /// It cannot be one, or could be read in two ways.
    Bad,
}

impl<'a> AnswerHead<'a> {
    /// The head that the bytes begin with.
    pub(super) fn parse(bytes: &'a [u8], to_head: bool) -> Result<Self, NoHead> {
        let mut room = [const { MaybeUninit::uninit() }; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let parsed = config.parse_response_with_uninit_headers(&mut response, bytes, &mut room);
        let length = match parsed {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Err(NoHead::Incomplete),
            Err(_) => return Err(NoHead::Bad),
        };
        // Three digits are not enough: there is none below 100.
        let status = response.code.filter(|code| *code >= 100);
        let status = status.ok_or(NoHead::Bad)?;
        let is_http11 = response.version == Some(1);
        let mut read = Reading {
            is_http11,
            keeps_alive: is_http11,
            ..Reading::default()
        };
        let mut headers = Headers::new();
        for header in &*response.headers {
            if read.read(header)? {
                headers.push((header.name, header.value));
            }
        }
        // There is none, and nobody must wait for it.
        if status == 204 {
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
        }
        if !read.named.is_empty() {
            let is_named = |name: &str| {
                let mut named = read.named.iter();
                named.any(|known| known.eq_ignore_ascii_case(name.as_bytes()))
            };
            headers.retain(|(name, _)| !is_named(name));
            read.has_date &= !is_named("date");
        }
        Ok(Self {
            status,
            reason: response.reason.unwrap_or_default(),
            headers,
            framing: read.framing(status, to_head)?,
            keeps_alive: read.keeps_alive,
            has_date: read.has_date,
            length,
        })
    }

    /// Appends the status line and the headers that are passed on, but not the
    /// line that ends them. `is_ours` tells of the names that we set ourselves.
    pub(super) fn write(&self, out: &mut Vec<u8>, now: SystemTime, is_ours: impl Fn(&str) -> bool) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(itoa::Buffer::new().format(self.status).as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.reason.as_bytes());
        out.extend_from_slice(b"\r\n");
        for (name, value) in &self.headers {
            if !is_ours(name) {
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b": ");
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
        }
        if !self.has_date {
            write_date(now, out);
        }
        match self.framing {
            // A length that came is among the headers.
            Framing::None | Framing::Length(_) => {}
            Framing::Chunked | Framing::UntilClose => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            }
        }
    }
}

/// What headers say of the body and the connection.
#[derive(Default)]
struct Reading<'a> {
    is_http11: bool,
    keeps_alive: bool,
    length: Option<u64>,
    is_chunked: bool,
    has_date: bool,
    /// The headers that are about the connection, as it says itself.
    named: smallvec::SmallVec<[&'a [u8]; 2]>,
}

impl<'a> Reading<'a> {
    /// Takes note of a header; tells whether it is passed on.
    fn read(&mut self, header: &httparse::Header<'a>) -> Result<bool, NoHead> {
        let is = |known: &str| header.name.eq_ignore_ascii_case(known);
        Ok(match header.name.len() {
            2 if is("te") => false,
            4 if is("date") => {
                self.has_date = true;
                true
            }
            5 if is("proxy") => false,
            7 if is("trailer") || is("upgrade") => false,
            10 if is("keep-alive") => false,
            10 if is("connection") => {
                self.read_connection(header.value);
                false
            }
            14 if is("content-length") => self.read_length(header.value)?,
            16 if is("proxy-connection") => false,
            17 if is("transfer-encoding") => {
                let is_chunked = header.value.eq_ignore_ascii_case(b"chunked");
                if !is_chunked || std::mem::replace(&mut self.is_chunked, true) {
                    return Err(NoHead::Bad);
                }
                false
            }
            18 if is("proxy-authenticate") => false,
            19 if is("proxy-authorization") => false,
            _ => true,
        })
    }

    fn read_connection(&mut self, value: &'a [u8]) {
        for option in value.split(|byte| *byte == b',') {
            match option.trim_ascii() {
                b"" => {}
                option if option.eq_ignore_ascii_case(b"keep-alive") => {}
                option if option.eq_ignore_ascii_case(b"close") => self.keeps_alive = false,
                // Its length is ours to tell, whatever it says.
                option if option.eq_ignore_ascii_case(b"content-length") => {}
                option => self.named.push(option),
            }
        }
    }

    /// More than one is one too many, whatever they say.
    fn read_length(&mut self, value: &[u8]) -> Result<bool, NoHead> {
        let length = content_length(value).ok_or(NoHead::Bad)?;
        match self.length.replace(length) {
            None => Ok(true),
            Some(_) => Err(NoHead::Bad),
        }
    }

    fn framing(&mut self, status: u16, to_head: bool) -> Result<Framing, NoHead> {
        // HTTP/1.0 knows no chunks: RFC 9112, 6.1.
        if self.is_chunked && (self.length.is_some() || !self.is_http11) {
            return Err(NoHead::Bad);
        }
        if to_head || matches!(status, 100..200 | 204 | 304) {
            return Ok(Framing::None);
        }
        Ok(match self.length {
            Some(length) => Framing::Length(length),
            None if self.is_chunked => Framing::Chunked,
            None => {
                self.keeps_alive = false;
                Framing::UntilClose
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written of an answer, how its body ends, and whether the
    /// connection lives on.
    fn passed(head: &str, to_head: bool) -> Result<(String, Framing, bool), NoHead> {
        let parsed = AnswerHead::parse(head.as_bytes(), to_head)?;
        assert_eq!(parsed.length, head.len());
        let mut out = Vec::new();
        parsed.write(&mut out, SystemTime::UNIX_EPOCH, |name| name == "Ours");
        let text = String::from_utf8(out).unwrap();
        let text = text.replace("date: Thu, 01 Jan 1970 00:00:00 GMT\r\n", "");
        Ok((text, parsed.framing, parsed.keeps_alive))
    }

    #[test]
    fn what_is_about_the_connection_is_not_passed_on() {
        let head = "HTTP/1.1 200 OK\r\nConnection: X-Gone, Keep-Alive\r\nX-gone: 1\r\n\
                    Keep-Alive: timeout=5\r\nUpgrade: h2c\r\nOurs: 2\r\nContent-Length: 3\r\n\
                    Server: s\r\n\r\n";
        assert_eq!(
            passed(head, false).unwrap(),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nServer: s\r\n".into(),
                Framing::Length(3),
                true
            )
        );
        assert_eq!(passed(head, true).unwrap().1, Framing::None);
    }

    #[test]
    fn a_date_that_is_not_passed_on_is_made_anew() {
        let head = "HTTP/1.1 200 OK\r\nConnection: date\r\nDate: x\r\nContent-Length: 0\r\n\r\n";
        let parsed = AnswerHead::parse(head.as_bytes(), false).unwrap();
        let mut out = Vec::new();
        parsed.write(&mut out, SystemTime::UNIX_EPOCH, |_| false);
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.ends_with("date: Thu, 01 Jan 1970 00:00:00 GMT\r\n"),
            "{text}"
        );
    }

    #[test]
    fn where_bodies_end() {
        let framing = |head: &str| passed(head, false).map(|(_, framing, alive)| (framing, alive));
        for (head, wanted) in [
            ("HTTP/1.1 204 \r\n\r\n", (Framing::None, true)),
            (
                "HTTP/1.1 304 N\r\nContent-Length: 9\r\n\r\n",
                (Framing::None, true),
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", (Framing::UntilClose, false)),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
                (Framing::Length(0), false),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
                (Framing::Chunked, false),
            ),
        ] {
            assert_eq!(framing(head), Ok(wanted), "{head}");
        }
        let (text, ..) = passed("HTTP/1.1 200 OK\r\n\r\n", false).unwrap();
        assert_eq!(text, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n");
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for bad in [
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.0 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\n",
            "FTP/1.1 200 OK\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
        ] {
            assert_eq!(passed(bad, false), Err(NoHead::Bad), "{bad}");
        }
        let whole = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(passed(&whole[..end], false), Err(NoHead::Incomplete));
        }
    }
}
