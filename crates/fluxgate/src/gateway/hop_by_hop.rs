//! Headers that are about one connection and not about the message.

use http::header::{
    CONNECTION, HOST, HeaderMap, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use smallvec::SmallVec;

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
    let mut named: SmallVec<[HeaderName; 4]> = SmallVec::new();
    for line in headers.get_all(CONNECTION) {
        let options = line.as_bytes().split(|byte| *byte == b',');
        let options = options.map(<[u8]>::trim_ascii);
        named.extend(options.filter_map(|name| HeaderName::from_bytes(name).ok()));
    }
    for name in named.iter().filter(|name| **name != HOST) {
        headers.remove(name);
    }
    for name in ALWAYS {
        headers.remove(name);
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
}
