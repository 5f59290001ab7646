//! Parses requests for the fast path.

use std::mem::MaybeUninit;

use fluxgate_core::path::RequestPath;
use fluxgate_http::server::content_length;
use fluxgate_http::{RequestHead, check_method, is_plain_name};
use smallvec::SmallVec;

use crate::hop_by_hop::HeaderKind;

/// More headers than browsers send.
const MAX_HEADERS: usize = 48;

/// A request that can be read in one way only.
#[derive(Debug)]
pub(crate) struct FastRequest<'a> {
    pub(crate) method: &'a str,
    /// The path and query as they were sent.
    pub(crate) target: &'a str,
    /// Both forms of the path.
    pub(crate) path: RequestPath<'a>,
    pub(crate) host: &'a str,
    headers: &'a [Header<'a>],
    repeats_headers: bool,
    pub(crate) body: &'a [u8],
    /// The length of the head.
    pub(crate) head: usize,
    /// The length of head and body.
    pub(crate) length: usize,
}

type Header<'a> = (&'a str, &'a [u8]);

/// The headers of a request, which it refers to: it is smaller without them.
pub(crate) type Headers<'a> = SmallVec<[Header<'a>; 16]>;

impl<'r> FastRequest<'r> {
    /// Parses the request that the bytes begin with. `headers` is empty.
    pub(crate) fn parse<'b: 'r>(bytes: &'b [u8], headers: &'r mut Headers<'b>) -> Option<Self> {
        let mut request = Self::parse_head(bytes, headers)?;
        request.body = bytes.get(request.head..request.length)?;
        Some(request)
    }

    /// Returns the length of the request that the bytes begin with, even if some of its body
    /// is missing.
    pub(crate) fn length_of(bytes: &[u8]) -> Option<usize> {
        let mut headers = Headers::new();
        FastRequest::parse_head(bytes, &mut headers).map(|request| request.length)
    }

    /// Parses the head.
    fn parse_head<'b: 'r>(bytes: &'b [u8], kept: &'r mut Headers<'b>) -> Option<Self> {
        // The parser would skip empty lines before the request.
        if !bytes.first()?.is_ascii_uppercase() {
            return None;
        }
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request
            .parse_with_uninit_headers(bytes, &mut headers)
            .ok()?;
        let httparse::Status::Complete(head) = parsed else {
            return None;
        };
        let (method, target) = (request.method?, request.path?);
        let is_known_method = method != "CONNECT" && check_method(method).is_ok();
        if request.version != Some(1) || !is_unambiguous_target(target) || !is_known_method {
            return None;
        }
        let query = memchr::memchr(b'?', target.as_bytes());
        let path = RequestPath::read(&target[..query.unwrap_or(target.len())]).ok()?;
        if has_bare_line_feed(&bytes[..head]) {
            return None;
        }
        let (mut host, mut length) = (None, None);
        let mut repeats_headers = false;
        for header in &*request.headers {
            match HeaderKind::of(header.name) {
                // Servers may take any other name for one that counts.
                HeaderKind::EndToEnd if is_plain_name(header.name) => {}
                HeaderKind::Host if host.is_none() && is_unambiguous_host(header.value) => {
                    host = Some(header.value);
                }
                HeaderKind::ContentLength if length.is_none() => {
                    length = Some(content_length(header.value)?);
                }
                // That is the default, and is not forwarded.
                HeaderKind::Connection if header.value.eq_ignore_ascii_case(b"keep-alive") => {
                    continue;
                }
                _ => return None,
            }
            let is_same = |(known, _): &Header<'_>| known.eq_ignore_ascii_case(header.name);
            repeats_headers |= kept.iter().any(is_same);
            kept.push((header.name, header.value));
        }
        let length = usize::try_from(length.unwrap_or(0)).ok()?;
        Some(Self {
            method,
            target,
            path,
            host: std::str::from_utf8(host?).ok()?,
            headers: kept,
            repeats_headers,
            body: &[],
            head,
            length: head.checked_add(length)?,
        })
    }
}

impl RequestHead for FastRequest<'_> {
    fn method(&self) -> &str {
        self.method
    }

    fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    fn header_lines<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.headers.iter();
        named
            .filter(move |(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }

    fn all_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter().copied()
    }

    fn may_repeat_headers(&self) -> bool {
        self.repeats_headers
    }
}

/// Returns whether a line ends with a bare line feed, which the parser accepts.
fn has_bare_line_feed(head: &[u8]) -> bool {
    let pairs = head.iter().zip(&head[1..]);
    // Folded without branches: a head has hundreds of bytes.
    pairs.fold(false, |any, (before, byte)| {
        any | ((*byte == b'\n') & (*before != b'\r'))
    })
}

/// Returns whether a target is an absolute path, perhaps with a query, that every server
/// reads in the same way.
fn is_unambiguous_target(target: &str) -> bool {
    const ALLOWED: [bool; 256] = {
        let mut allowed = [false; 256];
        let others = b"-._~!$&'()*+,;=:@/?%[]";
        let mut at = 0;
        while at < others.len() {
            allowed[others[at] as usize] = true;
            at += 1;
        }
        let mut byte = 0;
        while byte < 128 {
            if (byte as u8).is_ascii_alphanumeric() {
                allowed[byte] = true;
            }
            byte += 1;
        }
        allowed
    };
    let is_allowed = |byte: &u8| ALLOWED[usize::from(*byte)];
    target.starts_with('/') && target.as_bytes().iter().all(is_allowed)
}

/// Returns whether a host is a name or an IPv4 address, perhaps with a port.
fn is_unambiguous_host(value: &[u8]) -> bool {
    let (name, port) = match memchr::memchr(b':', value) {
        Some(at) => (&value[..at], content_length(&value[at + 1..])),
        None => (value, Some(80)),
    };
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() | matches!(byte, b'-' | b'.' | b'_');
    !name.is_empty() && name.iter().all(is_allowed) && port.is_some_and(|port| port <= 65_535)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unambiguous_request_is_parsed() {
        let bytes = "POST /a/b?c=d HTTP/1.1\r\nHost: x:80\r\nContent-Length: 2\r\n\
                     Connection: Keep-Alive\r\nX-A: 1\r\nx-a: 2\r\n\r\nhiGET /";
        let mut headers = Headers::new();
        let request = FastRequest::parse(bytes.as_bytes(), &mut headers).unwrap();
        assert!(request.may_repeat_headers());
        assert_eq!((request.method, request.target), ("POST", "/a/b?c=d"));
        assert_eq!((request.path.raw(), request.host), ("/a/b", "x:80"));
        assert_eq!(request.query(), Some("c=d"));
        assert_eq!(request.body, b"hi");
        assert_eq!(&bytes[request.length..], "GET /");
        let lines: Vec<_> = request.header_lines("X-a").collect();
        assert_eq!(lines, [b"1", b"2"]);
        let names: Vec<_> = request.all_headers().map(|(name, _)| name).collect();
        assert_eq!(names, ["Host", "Content-Length", "X-A", "x-a"]);
    }

    fn is_parsed(bytes: &[u8]) -> bool {
        FastRequest::parse(bytes, &mut Headers::new()).is_some()
    }

    #[test]
    fn the_length_is_known_before_the_body() {
        let whole = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
        for end in whole.len() - 2..whole.len() {
            assert!(!is_parsed(&whole[..end]));
            assert_eq!(FastRequest::length_of(&whole[..end]), Some(whole.len()));
        }
        assert_eq!(FastRequest::length_of(&whole[..whole.len() - 3]), None);
    }

    #[test]
    fn ambiguous_requests_are_left_to_hyper() {
        let whole = "GET /x HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n";
        assert!(is_parsed(whole.as_bytes()));
        for end in 0..whole.len() {
            assert!(!is_parsed(&whole.as_bytes()[..end]), "{end}");
        }
        for (found, other) in [
            ("GET /x", "\r\nGET /x"),
            ("GET /x", "GET  /x"),
            ("GET", "get"),
            ("GET", "Get"),
            ("GET /x", "GET http://b/x"),
            ("GET /x", "GET *"),
            ("GET /x", "CONNECT a:80"),
            ("GET /x", "GET /x#y"),
            ("GET /x", "GET /x\\y"),
            ("GET /x", "GET /é"),
            ("GET /x", "GET /./x"),
            ("GET /x", "GET /a/.."),
            ("GET /x", "GET /%2e%2E/x"),
            ("GET /x", "GET /..;/x"),
            ("GET /x", "GET /a%2f../x"),
            ("GET /x", "GET /a%5C..%5cx"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("HTTP/1.1", "HTTP/1.2"),
            ("Host: a", "Host: a\r\nHost: a"),
            ("Host: a", "Host: a@b"),
            ("Host: a", "Host: a/b"),
            ("Host: a", "Host:"),
            ("Host: a", "Host: a:"),
            ("Host: a", "Host: a:b"),
            ("Host: a", "Host: a:1:2"),
            ("Host: a", "Host: a:99999"),
            ("Host: a", "Host: [::1]"),
            ("Host: a", "Y: 2"),
            ("\r\nX", "\nX"),
            ("X: 1\r\n\r\n", "X: 1\n\n"),
            ("X: 1", "X : 1"),
            ("X: 1", "X: 1\r\n 2"),
            ("X: 1", "X: 1\r2"),
            ("X: 1", "X: \u{0}"),
            ("X: 1", "Transfer-Encoding: chunked"),
            ("X: 1", "Content-Length: 0\r\nContent-Length: 0"),
            ("X: 1", "Content-Length: +0"),
            ("X: 1", "Content-Length:"),
            ("X: 1", "Content-Length: 0, 0"),
            ("X: 1", "Content-Length: 1"),
            ("X: 1", "Content-Length: 18446744073709551615"),
            ("X: 1", "Content-Length: 18446744073709551616"),
            ("X: 1", "Content_Length: 0"),
            ("X: 1", "X_Forwarded-For: 1.2.3.4"),
            ("X: 1", "X.User.Id: 1"),
            ("X: 1", "-X: 1"),
            ("X: 1", "Connection: close"),
            ("X: 1", "Connection: keep-alive, x-secret"),
            ("X: 1", "Expect: 100-continue"),
            ("X: 1", "TE: trailers"),
            ("X: 1", "Upgrade: websocket"),
            ("X: 1", "Proxy-Connection: keep-alive"),
            ("X: 1", "Proxy-Authenticate: y"),
        ] {
            let bytes = whole.replacen(found, other, 1);
            assert_ne!(bytes, whole);
            assert!(!is_parsed(bytes.as_bytes()), "{bytes:?}");
        }
    }
}
