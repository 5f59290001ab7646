//! Headers that are about one connection and not about the message.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, HOST, HeaderMap, HeaderName, LOCATION, MAX_FORWARDS, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, RETRY_AFTER, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    WWW_AUTHENTICATE,
};
use smallvec::SmallVec;

use crate::http::REQUEST_ID;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Some servers take it for a setting of their own.
const PROXY: HeaderName = HeaderName::from_static("proxy");

const ALWAYS: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Takes them out, and those that `Connection` names as such. A host always
/// stays: it is no matter of a connection, whatever is said of it.
pub(super) fn strip(headers: &mut HeaderMap) {
    let named: SmallVec<[HeaderName; 4]> = named(headers).collect();
    for name in named.iter().filter(|name| **name != HOST) {
        headers.remove(name);
    }
    for name in ALWAYS {
        headers.remove(name);
    }
}

/// The headers that `Connection` names.
pub(super) fn named(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let lines = headers.get_all(CONNECTION).iter();
    let options = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    options.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
}

/// What means something only where it stands before the content (RFC 9110, 6.5.1).
const NO_TRAILERS: [HeaderName; 13] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    HOST,
    LOCATION,
    MAX_FORWARDS,
    RETRY_AFTER,
    SET_COOKIE,
    TRAILER,
    WWW_AUTHENTICATE,
];

/// Takes out of trailers what is about the connection, what must not stand there,
/// and what only we say.
pub(super) fn strip_trailers(trailers: &mut HeaderMap) {
    strip(trailers);
    for name in NO_TRAILERS {
        trailers.remove(name);
    }
    let is_ours = |name: &&HeaderName| {
        let name = name.as_str();
        let limits = name.strip_prefix("x-").unwrap_or(name);
        limits.starts_with("ratelimit") || name == REQUEST_ID
    };
    let ours: SmallVec<[HeaderName; 4]> = trailers.keys().filter(is_ours).cloned().collect();
    for name in ours {
        trailers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_the_connection_goes_and_the_rest_stays() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "a"),
            ("connection", "close, X-Private,, host"),
            ("connection", "keep-alive"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "x"),
            ("proxy-connection", "x"),
            ("proxy", "http://evil"),
            ("transfer-encoding", "chunked"),
            ("x-public", "2"),
        ] {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        strip(&mut headers);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["host", "x-public"]);
    }

    #[test]
    fn trailers_hold_nothing_that_belongs_before_the_content() {
        let mut trailers = HeaderMap::new();
        for name in [
            "x-sum",
            "grpc-status",
            "content-length",
            "transfer-encoding",
            "set-cookie",
            "x-ratelimit-limit",
            "ratelimit-policy",
            "retry-after",
            "x-request-id",
        ] {
            trailers.append(HeaderName::from_static(name), "1".parse().unwrap());
        }
        strip_trailers(&mut trailers);
        let left: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-sum", "grpc-status"]);
    }
}
