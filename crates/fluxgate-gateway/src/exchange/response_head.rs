//! The head of an upstream's response.

use std::mem::MaybeUninit;

use fluxgate_http::server::{content_length, is_token};
use http::response::Parts;
use smallvec::SmallVec;

use crate::hop_by_hop::{HeaderKind, connection_options};

const MAX_HEADERS: usize = 100;

/// The parts of a response that the client expects or accepts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpectedResponse {
    /// Whether it is a `HEAD` request, so that no body follows.
    pub(crate) head_only: bool,
    /// Whether the client accepts trailers.
    pub(crate) trailers: bool,
    /// Whether the client requested another protocol.
    pub(crate) upgrade: bool,
}

/// The head of a response that can be read in one way only, without hop-by-hop headers.
#[derive(Debug)]
pub(crate) struct ResponseHead<'a> {
    pub(crate) status: u16,
    pub(crate) reason: &'a str,
    pub(crate) headers: Headers<'a>,
    /// The protocol that the upstream switches to.
    pub(crate) upgrade: Option<&'a [u8]>,
    pub(crate) framing: Framing,
    /// Whether the connection may be reused after the body.
    pub(crate) keeps_alive: bool,
    /// Whether the headers include `Date`.
    pub(crate) has_date: bool,
    /// The length of the head in bytes.
    pub(crate) length: usize,
}

type Headers<'a> = SmallVec<[(&'a str, &'a [u8]); 16]>;

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body, whatever the headers say.
    None,
    /// After this many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// At the end of the connection.
    UntilClose,
}

/// Why bytes do not begin with a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadError {
    /// More bytes are needed.
    Incomplete,
    /// It is malformed or ambiguous.
    Invalid,
}

impl<'a> ResponseHead<'a> {
    /// Parses the head that the bytes begin with.
    pub(crate) fn parse(bytes: &'a [u8], wanted: ExpectedResponse) -> Result<Self, HeadError> {
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let parsed = config.parse_response_with_uninit_headers(&mut response, bytes, &mut headers);
        let length = match parsed {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Err(HeadError::Incomplete),
            Err(_) => return Err(HeadError::Invalid),
        };
        // The parser accepts any three digits.
        let status = response.code.filter(|code| *code >= 100);
        let status = status.ok_or(HeadError::Invalid)?;
        let is_http11 = response.version == Some(1);
        let mut fields = HeadFields {
            is_http11,
            keeps_alive: is_http11,
            ..HeadFields::default()
        };
        let mut headers = Headers::new();
        for header in &*response.headers {
            if fields.read(header, wanted)? {
                headers.push((header.name, header.value));
            }
        }
        // It would announce a body that never follows.
        if status == 204 {
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
        }
        if !fields.named.is_empty() {
            let is_named = |name: &str| {
                let mut named = fields.named.iter();
                named.any(|known| known.eq_ignore_ascii_case(name.as_bytes()))
            };
            headers.retain(|(name, _)| !is_named(name));
            fields.has_date &= !is_named("date");
        }
        Ok(Self {
            status,
            reason: response.reason.unwrap_or_default(),
            headers,
            upgrade: fields.upgrade,
            framing: fields.framing(status, wanted)?,
            keeps_alive: fields.keeps_alive,
            has_date: fields.has_date,
            length,
        })
    }
}

impl<'a> ResponseHead<'a> {
    /// Reads the head of a response over HTTP/2. A body of unknown length is `Chunked`.
    pub(crate) fn of_http2(parts: &'a Parts, wanted: ExpectedResponse) -> Result<Self, HeadError> {
        let mut fields = HeadFields {
            is_http11: true,
            keeps_alive: true,
            ..HeadFields::default()
        };
        let mut headers = Headers::new();
        for (name, value) in &parts.headers {
            let (name, value) = (name.as_str(), value.as_bytes());
            // The HTTP/2 library accepts names that HTTP/1.1 cannot carry.
            if !name.bytes().all(is_token) {
                return Err(HeadError::Invalid);
            }
            if fields.read(&httparse::Header { name, value }, wanted)? {
                headers.push((name, value));
            }
        }
        let status = parts.status.as_u16();
        if status == 204 {
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
        }
        // The library rejects them, too.
        if fields.is_chunked || fields.upgrade.is_some() || !fields.named.is_empty() {
            return Err(HeadError::Invalid);
        }
        let framing = match fields.framing(status, wanted)? {
            Framing::UntilClose => Framing::Chunked,
            known => known,
        };
        Ok(Self {
            status,
            reason: parts.status.canonical_reason().unwrap_or_default(),
            headers,
            upgrade: None,
            framing,
            keeps_alive: true,
            has_date: fields.has_date,
            length: 0,
        })
    }
}

/// What the headers say about the body and the connection.
#[derive(Default)]
struct HeadFields<'a> {
    is_http11: bool,
    keeps_alive: bool,
    length: Option<u64>,
    is_chunked: bool,
    has_date: bool,
    upgrade: Option<&'a [u8]>,
    /// The headers that `Connection` names.
    named: SmallVec<[&'a [u8]; 2]>,
}

impl<'a> HeadFields<'a> {
    /// Reads a header; returns whether it is forwarded.
    fn read(
        &mut self,
        header: &httparse::Header<'a>,
        wanted: ExpectedResponse,
    ) -> Result<bool, HeadError> {
        Ok(match HeaderKind::of(header.name) {
            HeaderKind::ContentLength => {
                let length = content_length(header.value).ok_or(HeadError::Invalid)?;
                // A second one is an error even if it is the same.
                if self.length.replace(length).is_some() {
                    return Err(HeadError::Invalid);
                }
                true
            }
            HeaderKind::TransferEncoding => {
                let is_chunked = header.value.eq_ignore_ascii_case(b"chunked");
                if !is_chunked || std::mem::replace(&mut self.is_chunked, true) {
                    return Err(HeadError::Invalid);
                }
                false
            }
            HeaderKind::Connection => {
                self.read_connection(header.value);
                false
            }
            HeaderKind::Upgrade => {
                self.upgrade = Some(header.value);
                false
            }
            HeaderKind::Trailer => wanted.trailers,
            HeaderKind::Te | HeaderKind::HopByHop => false,
            HeaderKind::EndToEnd | HeaderKind::Host | HeaderKind::Expect => {
                self.has_date |= header.name.eq_ignore_ascii_case("date");
                true
            }
        })
    }

    fn read_connection(&mut self, line: &'a [u8]) {
        for option in connection_options(line) {
            if option.eq_ignore_ascii_case(b"close") {
                self.keeps_alive = false;
            } else if !option.eq_ignore_ascii_case(b"keep-alive")
                // The length is needed to forward the body.
                && !option.eq_ignore_ascii_case(b"content-length")
            {
                self.named.push(option);
            }
        }
    }

    fn framing(&mut self, status: u16, wanted: ExpectedResponse) -> Result<Framing, HeadError> {
        // HTTP/1.0 has no chunks (RFC 9112, section 6.1).
        if self.is_chunked && (self.length.is_some() || !self.is_http11) {
            return Err(HeadError::Invalid);
        }
        if wanted.head_only || matches!(status, 100..200 | 204 | 304) {
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

    /// The names of the forwarded headers, the framing, and whether the connection is kept.
    fn parse(head: &str, head_only: bool) -> Result<(Vec<String>, Framing, bool), HeadError> {
        let wanted = ExpectedResponse {
            head_only,
            ..ExpectedResponse::default()
        };
        let parsed = ResponseHead::parse(head.as_bytes(), wanted)?;
        assert_eq!(parsed.length, head.len());
        let names = parsed.headers.iter().map(|(name, _)| (*name).to_owned());
        Ok((names.collect(), parsed.framing, parsed.keeps_alive))
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let head = "HTTP/1.1 200 OK\r\nConnection: X-Gone, Keep-Alive\r\nX-gone: 1\r\n\
                    Keep-Alive: timeout=5\r\nUpgrade: h2c\r\nTrailer: x\r\nContent-Length: 3\r\n\
                    Server: s\r\n\r\n";
        let names = vec!["Content-Length".to_owned(), "Server".to_owned()];
        assert_eq!(
            parse(head, false),
            Ok((names.clone(), Framing::Length(3), true))
        );
        assert_eq!(parse(head, true), Ok((names, Framing::None, true)));
    }

    #[test]
    fn a_date_that_connection_names_is_removed() {
        let head = b"HTTP/1.1 200 OK\r\nConnection: date\r\nDate: x\r\nContent-Length: 0\r\n\r\n";
        let parsed = ResponseHead::parse(head, ExpectedResponse::default()).unwrap();
        assert!(!parsed.has_date && parsed.headers.len() == 1);
    }

    #[test]
    fn trailers_are_announced_to_clients_that_accept_them() {
        let head = b"HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n";
        let wanted = ExpectedResponse {
            trailers: true,
            ..ExpectedResponse::default()
        };
        let parsed = ResponseHead::parse(head, wanted).unwrap();
        assert_eq!(parsed.headers[..], [("Trailer", &b"x-sum"[..])]);
    }

    #[test]
    fn the_framing_follows_from_status_and_headers() {
        for (head, framing, keeps_alive) in [
            ("HTTP/1.1 204 \r\n\r\n", Framing::None, true),
            (
                "HTTP/1.1 304 N\r\nContent-Length: 9\r\n\r\n",
                Framing::None,
                true,
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", Framing::UntilClose, false),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
                Framing::Length(0),
                false,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
                Framing::Chunked,
                false,
            ),
        ] {
            let parsed = parse(head, false).map(|(_, framing, alive)| (framing, alive));
            assert_eq!(parsed, Ok((framing, keeps_alive)), "{head}");
        }
    }

    #[test]
    fn heads_of_http2_can_be_read_in_one_way_only() {
        let parts = |status: u16, headers: &[(&str, &str)]| {
            let mut response = http::Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(*name, *value);
            }
            response.body(()).unwrap().into_parts().0
        };
        let framing = |status, headers: &[(&str, &str)], head_only| {
            let wanted = ExpectedResponse {
                head_only,
                ..ExpectedResponse::default()
            };
            let parts = parts(status, headers);
            ResponseHead::of_http2(&parts, wanted).map(|head| head.framing)
        };
        let length = ("content-length", "3");
        assert_eq!(framing(200, &[length], false), Ok(Framing::Length(3)));
        assert_eq!(framing(200, &[length], true), Ok(Framing::None));
        assert_eq!(framing(200, &[], false), Ok(Framing::Chunked));
        for status in [204, 304] {
            assert_eq!(framing(status, &[length], false), Ok(Framing::None));
        }
        for bad in [
            &[length, length][..],
            &[("content-length", "+3")],
            &[("transfer-encoding", "chunked")],
            &[("connection", "x-a")],
            &[("upgrade", "websocket")],
        ] {
            assert_eq!(framing(200, bad, false), Err(HeadError::Invalid), "{bad:?}");
        }
        let mut odd = parts(200, &[]);
        let name = http::HeaderName::from_lowercase(b"x\"").unwrap();
        odd.headers
            .insert(name, http::HeaderValue::from_static("y"));
        let head = ResponseHead::of_http2(&odd, ExpectedResponse::default());
        assert!(head.is_err());
        let parts = parts(204, &[length, ("date", "x"), ("x-a", "1")]);
        let head = ResponseHead::of_http2(&parts, ExpectedResponse::default()).unwrap();
        let names: Vec<_> = head.headers.iter().map(|(name, _)| *name).collect();
        assert_eq!((names, head.has_date), (vec!["date", "x-a"], true));
    }

    #[test]
    fn ambiguous_heads_are_invalid() {
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
            assert_eq!(parse(bad, false), Err(HeadError::Invalid), "{bad}");
        }
        let whole = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end], false), Err(HeadError::Incomplete));
        }
    }
}
