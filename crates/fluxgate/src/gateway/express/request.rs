//! Requests that can be forwarded without an HTTP library.

use std::mem::MaybeUninit;

use fluxgate_core::RequestPath;
use fluxgate_tower::RequestHead;
use memchr::memchr_iter;

use crate::http::content_length;

/// More headers than browsers send.
const MOST_HEADERS: usize = 48;

/// A request that can be read in one way only.
#[derive(Debug)]
pub(super) struct PlainRequest<'a> {
    pub(super) method: &'a str,
    /// Path and query, as they were sent.
    pub(super) target: &'a str,
    /// The path alone, in both its forms.
    pub(super) path: RequestPath<'a>,
    pub(super) host: &'a str,
    headers: Headers<'a>,
    pub(super) body: &'a [u8],
    /// Where the head ends.
    pub(super) head: usize,
    /// Where the body does.
    pub(super) length: usize,
}

type Headers<'a> = smallvec::SmallVec<[(&'a str, &'a [u8]); 16]>;

impl<'a> PlainRequest<'a> {
    /// The plain request that the bytes begin with.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut request = Self::head_of(bytes)?;
        request.body = bytes.get(request.head..request.length)?;
        Some(request)
    }

    /// How long the plain request is that the bytes begin with, of which the body
    /// may not be there yet.
    pub(super) fn length_of(bytes: &[u8]) -> Option<usize> {
        PlainRequest::head_of(bytes).map(|request| request.length)
    }

    /// The same without its body.
    fn head_of(bytes: &'a [u8]) -> Option<Self> {
        // A library may skip empty lines before a request; here nothing is skipped.
        if !bytes.first()?.is_ascii_uppercase() {
            return None;
        }
        let mut room = [const { MaybeUninit::uninit() }; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(bytes, &mut room).ok()?;
        let httparse::Status::Complete(head) = parsed else {
            return None;
        };
        let (method, target) = (request.method?, request.path?);
        if request.version != Some(1) || !is_plain_target(target) || method == "CONNECT" {
            return None;
        }
        let query = memchr::memchr(b'?', target.as_bytes());
        let path = RequestPath::read(&target[..query.unwrap_or(target.len())]).ok()?;
        // The parser takes a bare line feed for the end of a line.
        let mut line_ends = memchr_iter(b'\n', &bytes[..head]);
        if !line_ends.all(|at| at > 0 && bytes[at - 1] == b'\r') {
            return None;
        }
        let (mut host, mut length) = (None, None);
        let mut headers = Headers::new();
        for header in &*request.headers {
            match what_it_is(header.name) {
                Kind::Other => {}
                Kind::Host if host.is_none() && is_plain_host(header.value) => {
                    host = Some(header.value);
                }
                Kind::Length if length.is_none() => length = Some(content_length(header.value)?),
                // It says what is so in any case, and is not passed on.
                Kind::Connection if header.value.eq_ignore_ascii_case(b"keep-alive") => continue,
                _ => return None,
            }
            headers.push((header.name, header.value));
        }
        let length = usize::try_from(length.unwrap_or(0)).ok()?;
        Some(Self {
            method,
            target,
            path,
            host: std::str::from_utf8(host?).ok()?,
            headers,
            body: &[],
            head,
            length: head.checked_add(length)?,
        })
    }

    /// The headers that are passed on, in order; names as they were sent.
    pub(super) fn headers(&self) -> &[(&'a str, &'a [u8])] {
        &self.headers
    }
}

impl RequestHead for PlainRequest<'_> {
    fn method(&self) -> &str {
        self.method
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
}

/// What a header means to who forwards it.
enum Kind {
    /// Nothing.
    Other,
    Host,
    Length,
    Connection,
    /// It is about this connection, or changes how the request is read.
    Special,
}

fn what_it_is(name: &str) -> Kind {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    // Nearly all names are none of these, and most are told by their length.
    match name.len() {
        2 if is("te") => Kind::Special,
        4 if is("host") => Kind::Host,
        5 if is("proxy") => Kind::Special,
        6 if is("expect") => Kind::Special,
        7 if is("upgrade") || is("trailer") => Kind::Special,
        10 if is("connection") => Kind::Connection,
        10 if is("keep-alive") => Kind::Special,
        14 if is("content-length") => Kind::Length,
        14 if is("http2-settings") => Kind::Special,
        16 if is("proxy-connection") => Kind::Special,
        17 if is("transfer-encoding") => Kind::Special,
        18 if is("proxy-authenticate") => Kind::Special,
        19 if is("proxy-authorization") => Kind::Special,
        // Some servers take `_` for `-`.
        _ if name.contains('_') => Kind::Special,
        _ => Kind::Other,
    }
}

/// A path from the root and perhaps a query, of which everybody thinks the same.
fn is_plain_target(target: &str) -> bool {
    const PLAIN: [bool; 256] = {
        let mut plain = [false; 256];
        let others = b"-._~!$&'()*+,;=:@/?%[]";
        let mut at = 0;
        while at < others.len() {
            plain[others[at] as usize] = true;
            at += 1;
        }
        let mut byte = 0;
        while byte < 128 {
            if (byte as u8).is_ascii_alphanumeric() {
                plain[byte] = true;
            }
            byte += 1;
        }
        plain
    };
    let is_plain = |byte: &u8| PLAIN[usize::from(*byte)];
    target.starts_with('/') && target.as_bytes().iter().all(is_plain)
}

/// A name or an IPv4 address, perhaps with a port.
fn is_plain_host(value: &[u8]) -> bool {
    let (name, port) = match memchr::memchr(b':', value) {
        Some(at) => (&value[..at], content_length(&value[at + 1..])),
        None => (value, Some(80)),
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
    !name.is_empty() && name.iter().all(is_plain) && port.is_some_and(|port| port <= 65_535)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_request_is_known() {
        let bytes = "POST /a/b?c=d HTTP/1.1\r\nHost: x:80\r\nContent-Length: 2\r\n\
                     Connection: Keep-Alive\r\nX-A: 1\r\nx-a: 2\r\n\r\nhiGET /";
        let request = PlainRequest::parse(bytes.as_bytes()).unwrap();
        assert_eq!((request.method, request.target), ("POST", "/a/b?c=d"));
        assert_eq!((request.path.raw(), request.host), ("/a/b", "x:80"));
        assert_eq!(request.body, b"hi");
        assert_eq!(&bytes[request.length..], "GET /");
        let lines: Vec<_> = request.header_lines("X-a").collect();
        assert_eq!(lines, [b"1", b"2"]);
        let names: Vec<_> = request.headers().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["Host", "Content-Length", "X-A", "x-a"]);
    }

    #[test]
    fn a_body_may_be_on_its_way() {
        let whole = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
        for end in whole.len() - 2..whole.len() {
            assert!(PlainRequest::parse(&whole[..end]).is_none());
            assert_eq!(PlainRequest::length_of(&whole[..end]), Some(whole.len()));
        }
        assert_eq!(PlainRequest::length_of(&whole[..whole.len() - 3]), None);
    }

    #[test]
    fn what_could_be_read_in_another_way_is_left_to_others() {
        let plain = "GET /x HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n";
        assert!(PlainRequest::parse(plain.as_bytes()).is_some());
        for end in 0..plain.len() {
            assert!(
                PlainRequest::parse(&plain.as_bytes()[..end]).is_none(),
                "{end}"
            );
        }
        for (found, other) in [
            ("GET /x", "\r\nGET /x"),
            ("GET /x", "GET  /x"),
            ("GET", "get"),
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
            ("X: 1", "Connection: close"),
            ("X: 1", "Connection: keep-alive, x-secret"),
            ("X: 1", "Expect: 100-continue"),
            ("X: 1", "TE: trailers"),
            ("X: 1", "Upgrade: websocket"),
            ("X: 1", "Proxy-Connection: keep-alive"),
            ("X: 1", "Proxy-Authenticate: y"),
        ] {
            let bytes = plain.replacen(found, other, 1);
            assert_ne!(bytes, plain);
            assert!(PlainRequest::parse(bytes.as_bytes()).is_none(), "{bytes:?}");
        }
    }
}
