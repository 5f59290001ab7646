//! Rejects requests that two servers could read in different ways, even if hyper accepts
//! them.

use fluxgate_core::path::RequestPath;
use fluxgate_http::server::is_token;
use fluxgate_http::{are_alike, check_method, is_plain_name};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Method, Version};
use smallvec::SmallVec;

use crate::error::GatewayError;
use crate::hop_by_hop::{HeaderKind, connection_options};

/// A head that can be read in one way only, and what it says.
#[derive(Debug)]
pub(crate) struct CheckedHead<'p> {
    pub(crate) path: RequestPath<'p>,
    /// The host, perhaps with a port; empty if an HTTP/1.0 client does not name one.
    pub(crate) host: &'p str,
    /// The options of `Connection`.
    pub(crate) connection: SmallVec<[&'p [u8]; 2]>,
    /// Whether the client sends the body only after `100 Continue`.
    pub(crate) awaits_continue: bool,
    /// Whether the client accepts trailers.
    pub(crate) trailers: bool,
    /// The protocol of a permitted `Upgrade`.
    pub(crate) upgrade: Option<&'p HeaderValue>,
}

/// Checks the head of a request.
pub(crate) fn check(parts: &Parts) -> Result<CheckedHead<'_>, GatewayError> {
    if parts.method == Method::CONNECT {
        return Err(GatewayError::Connect);
    }
    let method = check_method(parts.method.as_str());
    method.map_err(|bad| GatewayError::Ambiguous(bad.reason()))?;
    let mut head = CheckedHead {
        path: read_path(parts)?,
        host: "",
        connection: SmallVec::new(),
        awaits_continue: false,
        trailers: false,
        upgrade: None,
    };
    let (mut host, mut has_length, mut is_chunked) = (None, false, false);
    let mut upgrades = 0;
    for (name, value) in &parts.headers {
        let (name, bytes) = (name.as_str(), value.as_bytes());
        check_line(name, bytes)?;
        match HeaderKind::of(name) {
            HeaderKind::EndToEnd if imitates_framing(name) => {
                return ambiguous("servers may take the name of a header for that of the framing");
            }
            HeaderKind::EndToEnd | HeaderKind::HopByHop | HeaderKind::Trailer => {}
            HeaderKind::Host if host.replace(value).is_some() => {
                return ambiguous("more than one Host");
            }
            HeaderKind::Host => {}
            HeaderKind::ContentLength => {
                let is_number = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
                if !is_number || std::mem::replace(&mut has_length, true) {
                    return ambiguous("Content-Length must be a single number");
                }
            }
            HeaderKind::TransferEncoding => {
                let is_known = bytes.eq_ignore_ascii_case(b"chunked");
                if !is_known || std::mem::replace(&mut is_chunked, true) {
                    return ambiguous("Transfer-Encoding must be exactly chunked");
                }
            }
            HeaderKind::Connection => head.connection.extend(connection_options(bytes)),
            HeaderKind::Expect if bytes.eq_ignore_ascii_case(b"100-continue") => {
                head.awaits_continue = true;
            }
            HeaderKind::Expect => return Err(GatewayError::Expectation),
            HeaderKind::Te => {
                let mut codings = bytes.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                head.trailers |= codings.any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
            }
            HeaderKind::Upgrade => {
                upgrades += 1;
                head.upgrade = Some(value);
            }
        }
    }
    if has_length && is_chunked {
        return ambiguous("both Content-Length and Transfer-Encoding");
    }
    head.host = read_host(parts, host)?;
    let mut options = head.connection.iter();
    let is_named = options.any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    let can_upgrade = is_named && parts.version == Version::HTTP_11 && upgrades == 1;
    // After a switch to any other protocol, such as HTTP, requests would bypass the filters. A
    // list lets the server choose.
    let is_allowed =
        |protocol: &&HeaderValue| protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
    head.upgrade = head.upgrade.filter(|_| can_upgrade).filter(is_allowed);
    Ok(head)
}

/// Returns whether servers may take the name of a header for one that says where a body ends.
fn imitates_framing(name: &str) -> bool {
    const FRAMING: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];
    let name_is = |known: &&[u8]| are_alike(known, name.as_bytes());
    !is_plain_name(name) && FRAMING.iter().any(name_is)
}

fn ambiguous<T>(reason: &'static str) -> Result<T, GatewayError> {
    Err(GatewayError::Ambiguous(reason))
}

fn read_path(parts: &Parts) -> Result<RequestPath<'_>, GatewayError> {
    let path = parts.uri.path();
    // Only `OPTIONS *` has a target that is not a path.
    if path.is_empty() || (path == "*" && parts.method != Method::OPTIONS) {
        return ambiguous("the target is not a path");
    }
    RequestPath::read(path).map_err(|error| GatewayError::Ambiguous(error.reason()))
}

/// Rejects a header that HTTP/2 can carry and HTTP/1.1 cannot. White space around a value would
/// be lost, and change the identity of the sender.
fn check_line(name: &str, value: &[u8]) -> Result<(), GatewayError> {
    if !name.bytes().all(is_token) {
        return ambiguous("the name of a header is not a token");
    }
    if value.trim_ascii().len() < value.len() {
        ambiguous("the value of a header begins or ends with white space")
    } else {
        Ok(())
    }
}

/// Returns the one host of the request; `line` is the header `Host`.
fn read_host<'p>(parts: &'p Parts, line: Option<&'p HeaderValue>) -> Result<&'p str, GatewayError> {
    let is_http2 = parts.version >= Version::HTTP_2;
    match (parts.uri.authority(), line) {
        (_, None) if parts.version == Version::HTTP_11 => ambiguous("Host is missing"),
        (None, None) if parts.version == Version::HTTP_10 => Ok(""),
        (None, None) => ambiguous("Host is missing"),
        (Some(authority), line) => {
            let text = authority.as_str();
            let differs =
                |line: &HeaderValue| !line.as_bytes().eq_ignore_ascii_case(text.as_bytes());
            // In HTTP/1.1 the target takes precedence, and replaces Host.
            if is_http2 && line.is_some_and(differs) {
                return ambiguous("Host and :authority differ");
            }
            if is_host(authority) {
                Ok(text)
            } else {
                ambiguous("Host is not a valid host and port")
            }
        }
        (None, Some(line)) => {
            let text = line.to_str().ok();
            let text = text.filter(|text| text.parse().is_ok_and(|parsed| is_host(&parsed)));
            text.ok_or(GatewayError::Ambiguous("Host is not a valid host and port"))
        }
    }
}

fn is_host(authority: &Authority) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]%".contains(&byte);
    let text = authority.as_str();
    // What follows the host is a port or nothing.
    let port = text.strip_prefix(authority.host());
    text.bytes().all(is_allowed)
        && port.is_some_and(|port| port.is_empty() || authority.port_u16().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn unambiguous_requests_pass() {
        for (method, uri, headers, host) in [
            ("GET", "/", &[("host", "a.example")][..], "a.example"),
            ("GET", "/a/...?x=..", &[("host", "[::1]:80")], "[::1]:80"),
            ("GET", "/a;..;b/c%2Fd/..e/;./f..", &[("host", "a")], "a"),
            ("GET", "http://b.example/", &[("host", "a")], "b.example"),
            ("OPTIONS", "*", &[("host", "a")], "a"),
            ("POST", "/", &[("host", "a"), ("content-length", "5")], "a"),
            (
                "POST",
                "/",
                &[("host", "a"), ("transfer-encoding", "Chunked")],
                "a",
            ),
            (
                "POST",
                "/",
                &[("host", "a"), ("expect", "100-Continue")],
                "a",
            ),
        ] {
            let parts = parts(method, uri, headers);
            let checked = check(&parts).map(|head| head.host);
            assert_eq!(checked.ok(), Some(host), "{uri} {headers:?}");
        }
    }

    #[test]
    fn ambiguous_requests_are_rejected() {
        let host = ("host", "a");
        for (method, uri, headers) in [
            ("CONNECT", "a:80", &[host][..]),
            ("GET", "/", &[]),
            ("GET", "http://a/", &[]),
            ("GET", "/", &[host, host]),
            ("GET", "/", &[("host", "")]),
            ("GET", "/", &[("host", "a b")]),
            ("GET", "/", &[("host", "a/b")]),
            ("GET", "/", &[("host", "a@b")]),
            ("GET", "/", &[("host", "a,b")]),
            ("GET", "/", &[("host", "a:99999")]),
            ("GET", "/", &[("host", "a:b")]),
            ("GET", "*", &[host]),
            ("GET", "/a/../b", &[host]),
            ("GET", "/a/.%2E/b", &[host]),
            ("GET", "/a/%2e", &[host]),
            ("GET", "/a/..;/b", &[host]),
            ("GET", "/a/..%3Bx=1/b", &[host]),
            ("GET", "/a/..%2fb", &[host]),
            ("GET", "/a%5C..%5cb", &[host]),
            ("GET", "/a%2f..", &[host]),
            ("POST", "/", &[host, ("transfer-encoding", "gzip, chunked")]),
            ("POST", "/", &[host, ("transfer-encoding", "xchunked")]),
            (
                "POST",
                "/",
                &[host, ("transfer-encoding", "chunked, chunked")],
            ),
            (
                "POST",
                "/",
                &[
                    host,
                    ("transfer-encoding", "chunked"),
                    ("transfer-encoding", "identity"),
                ],
            ),
            (
                "POST",
                "/",
                &[
                    host,
                    ("transfer-encoding", "chunked"),
                    ("content-length", "1"),
                ],
            ),
            (
                "POST",
                "/",
                &[host, ("content-length", "1"), ("content-length", "1")],
            ),
            ("POST", "/", &[host, ("content-length", "+1")]),
            ("POST", "/", &[host, ("content-length", "1, 1")]),
            ("POST", "/", &[host, ("content-length", "")]),
            ("POST", "/", &[host, ("content_length", "1")]),
            ("POST", "/", &[host, ("transfer_encoding", "chunked")]),
            ("POST", "/", &[host, ("content.length", "1")]),
            ("POST", "/", &[host, ("transfer~encoding-", "chunked")]),
            ("post", "/", &[host]),
            ("Get", "/", &[host]),
            ("POST", "/", &[host, ("expect", "200-ok")]),
        ] {
            let parts = parts(method, uri, headers);
            let checked = check(&parts);
            assert!(checked.is_err(), "{method} {uri} {headers:?}");
        }
    }

    #[test]
    fn header_names_that_only_http2_accepts_are_rejected() {
        let mut parts = parts("GET", "/", &[("host", "a")]);
        // The h2 crate parses names like this.
        let name = http::HeaderName::from_lowercase(b"x\"").unwrap();
        parts
            .headers
            .insert(name, http::HeaderValue::from_static("y"));
        assert!(check(&parts).is_err());
    }

    #[test]
    fn white_space_around_a_value_is_rejected() {
        for (value, is_good) in [("y z", true), ("", true), ("y ", false), ("\ty", false)] {
            let parts = parts("GET", "/", &[("host", "a"), ("x", value)]);
            let checked = check(&parts);
            assert_eq!(checked.is_ok(), is_good, "{value:?}");
        }
    }

    #[test]
    fn an_upgrade_needs_both_headers_and_is_to_websocket_only() {
        let wanted = |headers: &[(&str, &str)]| {
            let headers = [&[("host", "a")], headers].concat();
            let parts = parts("GET", "/", &headers);
            check(&parts).unwrap().upgrade.cloned()
        };
        let websocket = ("upgrade", "websocket");
        assert!(wanted(&[websocket, ("connection", "keep-alive, Upgrade")]).is_some());
        assert!(wanted(&[websocket]).is_none());
        assert!(wanted(&[("connection", "upgrade")]).is_none());
        for others in [
            "h2c",
            "foo, HTTP/1.1",
            "websocket, h2c",
            "foo",
            "websocket/13",
            "",
        ] {
            let headers = [("upgrade", others), ("connection", "upgrade")];
            assert!(wanted(&headers).is_none(), "{others}");
        }
        let twice = [websocket, ("upgrade", "h2c"), ("connection", "upgrade")];
        assert!(wanted(&twice).is_none());
        assert!(wanted(&[("upgrade", "WebSocket"), ("connection", "upgrade")]).is_some());
    }
}
