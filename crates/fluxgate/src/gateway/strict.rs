//! Requests that two parsers could read in two ways. They are refused here,
//! whatever the HTTP library lets through; the rest has one reading.

use fluxgate_core::RequestPath;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, Response, Version};

use super::trouble::Trouble;

/// Checks the head of a request; returns its path and the host that it is for, perhaps
/// with a port. An old client may not say it.
pub(super) fn check(parts: &Parts) -> Result<(RequestPath<'_>, String), Trouble> {
    if parts.method == Method::CONNECT {
        return Err(Trouble::Connect);
    }
    let path = read_path(parts)?;
    check_lines(&parts.headers)?;
    check_framing(&parts.headers)?;
    check_expectation(parts)?;
    Ok((path, host(parts)?))
}

fn read_path(parts: &Parts) -> Result<RequestPath<'_>, Trouble> {
    let path = parts.uri.path();
    // Only a question about the whole server has a target that is no path.
    let is_none = path.is_empty() || (path == "*" && parts.method != Method::OPTIONS);
    if is_none {
        return Err(Trouble::Ambiguous("the target is not a path"));
    }
    RequestPath::read(path).map_err(|error| Trouble::Ambiguous(error.reason()))
}

/// What comes over HTTP/2 may hold what HTTP/1.1 could not carry: the blanks around
/// a value, of which an upstream would know nothing, would make it another's.
fn check_lines(headers: &HeaderMap) -> Result<(), Trouble> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    for (name, value) in headers {
        if !name.as_str().bytes().all(is_token) {
            return Err(Trouble::Ambiguous("the name of a header is none"));
        }
        if value.as_bytes().trim_ascii().len() < value.len() {
            let why = "the value of a header begins or ends with a blank";
            return Err(Trouble::Ambiguous(why));
        }
    }
    Ok(())
}

/// How long the body is must be said at most once.
fn check_framing(headers: &HeaderMap) -> Result<(), Trouble> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let is_chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !is_chunked || codings.next().is_some() {
            return Err(Trouble::Ambiguous("Transfer-Encoding is not just chunked"));
        }
        if headers.contains_key(CONTENT_LENGTH) {
            return Err(Trouble::Ambiguous("a length, and chunks"));
        }
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    if let Some(length) = lengths.next() {
        let is_number = !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit);
        if !is_number || lengths.next().is_some() {
            return Err(Trouble::Ambiguous("Content-Length is not one number"));
        }
    }
    // Some servers take `_` for `-` in names.
    let is_disguised =
        |name: &http::HeaderName| matches!(name.as_str(), "content_length" | "transfer_encoding");
    match headers.keys().any(is_disguised) {
        true => Err(Trouble::Ambiguous("a length in disguise")),
        false => Ok(()),
    }
}

fn check_expectation(parts: &Parts) -> Result<(), Trouble> {
    let mut expected = parts.headers.get_all(EXPECT).iter();
    let is_known =
        |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    match expected.all(is_known) {
        true => Ok(()),
        false => Err(Trouble::Expectation),
    }
}

/// The one host that the request is for.
fn host(parts: &Parts) -> Result<String, Trouble> {
    let mut lines = parts.headers.get_all(HOST).iter();
    let line = lines.next();
    if lines.next().is_some() {
        return Err(Trouble::Ambiguous("more than one Host"));
    }
    let said = match (parts.uri.authority(), line) {
        (_, None) if parts.version == Version::HTTP_11 => {
            return Err(Trouble::Ambiguous("Host is missing"));
        }
        // In HTTP/1.1 the target counts, and Host is replaced by it.
        (Some(authority), _) if parts.version < Version::HTTP_2 => authority.as_str(),
        (Some(authority), Some(line)) => {
            let same = authority
                .as_str()
                .as_bytes()
                .eq_ignore_ascii_case(line.as_bytes());
            if !same {
                return Err(Trouble::Ambiguous("Host and :authority differ"));
            }
            authority.as_str()
        }
        (Some(authority), None) => authority.as_str(),
        (None, Some(line)) => {
            let line = line.to_str();
            line.map_err(|_| Trouble::Ambiguous("Host is no host"))?
        }
        (None, None) if parts.version == Version::HTTP_10 => return Ok(String::new()),
        (None, None) => return Err(Trouble::Ambiguous("Host is missing")),
    };
    match is_host(said) {
        true => Ok(said.to_owned()),
        false => Err(Trouble::Ambiguous("Host is no host")),
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
    // What stands behind the last colon is a port, or there is none.
    let port = text.strip_prefix(authority.host());
    port.is_some_and(|port| port.is_empty() || authority.port_u16().is_some())
}

/// Checks what an upstream says of the length of its answer.
pub(super) fn check_answer<B>(answer: &Response<B>) -> Result<(), Trouble> {
    let headers = answer.headers();
    // HTTP/1.0 knows no chunks: RFC 9112, 6.1.
    if answer.version() == Version::HTTP_10 && headers.contains_key(TRANSFER_ENCODING) {
        return Err(Trouble::Malformed("chunks in HTTP/1.0"));
    }
    check_framing(headers).map_err(|trouble| match trouble {
        Trouble::Ambiguous(why) => Trouble::Malformed(why),
        other => other,
    })
}

/// The protocol that a client wants to go on with, if it may.
pub(super) fn wanted_upgrade(parts: &Parts) -> Option<http::HeaderValue> {
    let wanted = parts.headers.get(UPGRADE)?;
    let is_named = parts
        .headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("upgrade"));
    // HTTP/2 behind our back would carry requests that nobody judges.
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
    fn what_has_one_reading_passes() {
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
    fn what_has_two_does_not() {
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
    fn a_name_that_http2_lets_through_is_refused() {
        let mut parts = parts("GET", "/", &[("host", "a")]);
        // HTTP/2's names are read in this way.
        let name = http::HeaderName::from_lowercase(b"x\"").unwrap();
        parts
            .headers
            .insert(name, http::HeaderValue::from_static("y"));
        assert!(check(&parts).is_err());
    }

    #[test]
    fn blanks_around_a_value_are_refused() {
        for (value, is_good) in [("y z", true), ("", true), ("y ", false), ("\ty", false)] {
            let parts = parts("GET", "/", &[("host", "a"), ("x", value)]);
            let checked = check(&parts);
            assert_eq!(checked.is_ok(), is_good, "{value:?}");
        }
    }

    #[test]
    fn only_what_is_asked_for_in_full_is_an_upgrade() {
        let wanted = |headers: &[(&str, &str)]| wanted_upgrade(&parts("GET", "/", headers));
        let websocket = ("upgrade", "websocket");
        assert!(wanted(&[websocket, ("connection", "keep-alive, Upgrade")]).is_some());
        assert!(wanted(&[websocket]).is_none());
        assert!(wanted(&[("connection", "upgrade")]).is_none());
        assert!(wanted(&[("upgrade", "h2c"), ("connection", "upgrade")]).is_none());
    }
}
