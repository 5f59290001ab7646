//! Headers that concern one connection and not the message (RFC 9110, section 7.6.1).

use fluxgate_http::server::REQUEST_ID;
use http::header::HeaderName;

/// What a header means to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderKind {
    /// It is forwarded as it is, unless `Connection` names it.
    EndToEnd,
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    Expect,
    Te,
    Trailer,
    Upgrade,
    /// Any other header that is never forwarded.
    HopByHop,
}

impl HeaderKind {
    /// Returns the kind of the header with this name, in any case.
    pub(crate) fn of(name: &str) -> Self {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        // Nearly all names are end-to-end, and most are recognized by their length.
        match name.len() {
            2 if is("te") => Self::Te,
            4 if is("host") => Self::Host,
            // CGI turns it into `HTTP_PROXY`.
            5 if is("proxy") => Self::HopByHop,
            6 if is("expect") => Self::Expect,
            7 if is("upgrade") => Self::Upgrade,
            7 if is("trailer") => Self::Trailer,
            10 if is("connection") => Self::Connection,
            10 if is("keep-alive") => Self::HopByHop,
            14 if is("content-length") => Self::ContentLength,
            14 if is("http2-settings") => Self::HopByHop,
            16 if is("proxy-connection") => Self::HopByHop,
            17 if is("transfer-encoding") => Self::TransferEncoding,
            18 if is("proxy-authenticate") => Self::HopByHop,
            19 if is("proxy-authorization") => Self::HopByHop,
            _ => Self::EndToEnd,
        }
    }
}

/// Returns the options of a `Connection` header.
pub(crate) fn connection_options(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let options = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    options.filter(|option| !option.is_empty())
}

/// Headers that have a meaning only before the content (RFC 9110, section 6.5.1).
const NEVER_TRAILERS: &str = "authorization cache-control content-encoding content-length \
    content-range content-type host location max-forwards retry-after set-cookie trailer \
    www-authenticate";

/// Returns whether a trailer is forwarded: it is end-to-end, may stand after the content, and
/// is not a header that the gateway sets.
pub(crate) fn is_forwarded_trailer(name: &HeaderName) -> bool {
    let text = name.as_str();
    let limits = text.strip_prefix("x-").unwrap_or(text);
    HeaderKind::of(text) == HeaderKind::EndToEnd
        && !NEVER_TRAILERS.split(' ').any(|never| never == text)
        && !limits.starts_with("ratelimit")
        && *name != REQUEST_ID
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_hold_nothing_that_belongs_before_the_content() {
        for (name, is_forwarded) in [
            ("x-sum", true),
            ("grpc-status", true),
            ("content-length", false),
            ("transfer-encoding", false),
            ("keep-alive", false),
            ("set-cookie", false),
            ("x-ratelimit-limit", false),
            ("ratelimit-policy", false),
            ("retry-after", false),
            ("x-request-id", false),
        ] {
            let name = HeaderName::from_static(name);
            assert_eq!(is_forwarded_trailer(&name), is_forwarded, "{name}");
        }
    }

    #[test]
    fn a_connection_header_lists_options() {
        let options: Vec<_> = connection_options(b"close, X-Private,, host ,").collect();
        assert_eq!(options, [&b"close"[..], b"X-Private", b"host"]);
    }
}
