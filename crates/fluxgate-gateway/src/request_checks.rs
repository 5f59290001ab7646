//! Rejects requests that two servers could read in different ways, even if hyper accepts
//! them.

use fluxgate_core::RequestPath;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, Version};

use crate::error::GatewayError;

/// Checks the head of a request; returns its path and its host, perhaps with a port. The host
/// is empty if an HTTP/1.0 client does not name one.
pub(crate) fn check(parts: &Parts) -> Result<(RequestPath<'_>, String), GatewayError> {
    if parts.method == Method::CONNECT {
        return Err(GatewayError::Connect);
    }
    let path = read_path(parts)?;
    check_lines(&parts.headers)?;
    check_framing(&parts.headers)?;
    check_expectation(parts)?;
    Ok((path, host(parts)?))
}

fn read_path(parts: &Parts) -> Result<RequestPath<'_>, GatewayError> {
    let path = parts.uri.path();
    // Only `OPTIONS *` has a target that is not a path.
    if path.is_empty() || (path == "*" && parts.method != Method::OPTIONS) {
        return Err(GatewayError::Ambiguous("the target is not a path"));
    }
    RequestPath::read(path).map_err(|error| GatewayError::Ambiguous(error.reason()))
}

/// Rejects headers that HTTP/2 can carry and HTTP/1.1 cannot. Blanks around a value would be
/// lost, and change the identity of the sender.
fn check_lines(headers: &HeaderMap) -> Result<(), GatewayError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    for (name, value) in headers {
        if !name.as_str().bytes().all(is_token) {
            return Err(GatewayError::Ambiguous(
                "the name of a header is not a token",
            ));
        }
        if value.as_bytes().trim_ascii().len() < value.len() {
            let why = "the value of a header begins or ends with a blank";
            return Err(GatewayError::Ambiguous(why));
        }
    }
    Ok(())
}

/// The length of the body must be declared at most once.
fn check_framing(headers: &HeaderMap) -> Result<(), GatewayError> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let is_chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !is_chunked || codings.next().is_some() {
            return Err(GatewayError::Ambiguous(
                "Transfer-Encoding is not just chunked",
            ));
        }
        if headers.contains_key(CONTENT_LENGTH) {
            return Err(GatewayError::Ambiguous(
                "both Content-Length and Transfer-Encoding",
            ));
        }
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    if let Some(length) = lengths.next() {
        let is_number = !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit);
        if !is_number || lengths.next().is_some() {
            return Err(GatewayError::Ambiguous("Content-Length is not one number"));
        }
    }
    // Some servers take `_` for `-` in names.
    let is_disguised =
        |name: &http::HeaderName| matches!(name.as_str(), "content_length" | "transfer_encoding");
    match headers.keys().any(is_disguised) {
        true => Err(GatewayError::Ambiguous(
            "a framing header is spelled with `_`",
        )),
        false => Ok(()),
    }
}

fn check_expectation(parts: &Parts) -> Result<(), GatewayError> {
    let mut expected = parts.headers.get_all(EXPECT).iter();
    let is_known =
        |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    match expected.all(is_known) {
        true => Ok(()),
        false => Err(GatewayError::Expectation),
    }
}

/// Returns the one host of the request.
fn host(parts: &Parts) -> Result<String, GatewayError> {
    let mut lines = parts.headers.get_all(HOST).iter();
    let line = lines.next();
    if lines.next().is_some() {
        return Err(GatewayError::Ambiguous("more than one Host"));
    }
    let host = match (parts.uri.authority(), line) {
        (_, None) if parts.version == Version::HTTP_11 => {
            return Err(GatewayError::Ambiguous("Host is missing"));
        }
        // In HTTP/1.1 the target takes precedence, and replaces Host.
        (Some(authority), _) if parts.version < Version::HTTP_2 => authority.as_str(),
        (Some(authority), Some(line)) => {
            let same = authority
                .as_str()
                .as_bytes()
                .eq_ignore_ascii_case(line.as_bytes());
            if !same {
                return Err(GatewayError::Ambiguous("Host and :authority differ"));
            }
            authority.as_str()
        }
        (Some(authority), None) => authority.as_str(),
        (None, Some(line)) => {
            let line = line.to_str();
            line.map_err(|_| GatewayError::Ambiguous("Host is not a host"))?
        }
        (None, None) if parts.version == Version::HTTP_10 => return Ok(String::new()),
        (None, None) => return Err(GatewayError::Ambiguous("Host is missing")),
    };
    match is_host(host) {
        true => Ok(host.to_owned()),
        false => Err(GatewayError::Ambiguous("Host is not a host")),
    }
}

fn is_host(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]%".contains(&byte);
    let authority = text
        .bytes()
        .all(is_plain)
        .then(|| text.parse::<Authority>());
    let Some(Ok(authority)) = authority else {
        return false;
    };
    // What follows the host is a port or nothing.
    let port = text.strip_prefix(authority.host());
    port.is_some_and(|port| port.is_empty() || authority.port_u16().is_some())
}

/// Returns the protocol that the client asks to switch to, if it may.
pub(crate) fn wanted_upgrade(parts: &Parts) -> Option<http::HeaderValue> {
    let wanted = parts.headers.get(UPGRADE)?;
    let is_named = parts
        .headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("upgrade"));
    // Requests within HTTP/2 would bypass the filters.
    let is_http = |value: &http::HeaderValue| {
        let text = value.as_bytes().to_ascii_lowercase();
        text.windows(2).any(|pair| pair == b"h2") || text.starts_with(b"http")
    };
    (is_named && parts.version == Version::HTTP_11 && !is_http(wanted)).then(|| wanted.clone())
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
            let checked = check(&parts).map(|(_, host)| host);
            assert_eq!(checked.ok().as_deref(), Some(host), "{uri} {headers:?}");
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
    fn blanks_around_a_value_are_rejected() {
        for (value, is_good) in [("y z", true), ("", true), ("y ", false), ("\ty", false)] {
            let parts = parts("GET", "/", &[("host", "a"), ("x", value)]);
            let checked = check(&parts);
            assert_eq!(checked.is_ok(), is_good, "{value:?}");
        }
    }

    #[test]
    fn an_upgrade_needs_both_headers_and_must_not_be_http() {
        let wanted = |headers: &[(&str, &str)]| wanted_upgrade(&parts("GET", "/", headers));
        let websocket = ("upgrade", "websocket");
        assert!(wanted(&[websocket, ("connection", "keep-alive, Upgrade")]).is_some());
        assert!(wanted(&[websocket]).is_none());
        assert!(wanted(&[("connection", "upgrade")]).is_none());
        assert!(wanted(&[("upgrade", "h2c"), ("connection", "upgrade")]).is_none());
    }
}
