//! Checks of the headers that rules read.

use crate::alike_names::is_plain_name;
use crate::request_head::{BadRequest, RequestHead};
use crate::source::check_header;

/// Hop-by-hop headers, and secrets that no rule should read. Handlers that read all headers do
/// not read these.
pub const WITHHELD: [&str; 11] = [
    "authorization",
    "connection",
    "cookie",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers whose lines form one list, so clients and proxies may repeat them with other values.
const LISTS: &str = "accept accept-charset accept-encoding accept-language \
    access-control-request-headers baggage cache-control cdn-loop content-encoding \
    content-language expect forwarded grpc-accept-encoding if-match if-none-match link pragma \
    prefer sec-websocket-extensions sec-websocket-protocol tracestate vary via warning \
    x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto";

/// Rejects a request with a header among `names` that has two values, or one that servers clean
/// in different ways. `names` are in lower case.
pub(crate) fn check_named(head: &impl RequestHead, names: &[Box<str>]) -> Result<(), BadRequest> {
    // HTTP/2 may split cookies into several lines.
    for name in names.iter().filter(|name| ***name != *"cookie") {
        if let Some(value) = head.only_value(name)? {
            check_header(name, value)?;
        }
    }
    Ok(())
}

/// Returns the first line of each header of a request whose rules may read any of them. Rejects
/// the request as [`check_named`] does, but for lists and for headers that are withheld. Headers
/// whose names servers may take for another are left out, unless they are known.
pub(crate) fn read_all(
    head: &impl RequestHead,
    is_known: impl Fn(&str) -> bool,
) -> Result<Vec<(&str, &[u8])>, BadRequest> {
    let mut first: Vec<(&str, &[u8])> = Vec::new();
    for (name, value) in head.all_headers() {
        if !is_plain_name(name) && !is_known(name) {
            continue;
        }
        let is_name = |it: &str| it.eq_ignore_ascii_case(name);
        let is_withheld = WITHHELD.into_iter().any(is_name);
        if !is_withheld {
            check_header(name, value)?;
        }
        let mut earlier = first.iter();
        match earlier.find(|(it, _)| it.eq_ignore_ascii_case(name)) {
            None => first.push((name, value)),
            Some((_, known)) if *known == value || is_withheld || LISTS.split(' ').any(is_name) => {
            }
            Some(_) => return Err(BadRequest::ConflictingValues),
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::request::Parts;
    use http::{HeaderValue, Request};

    fn head(headers: &[(&str, &str)]) -> Parts {
        let request = headers.iter().fold(Request::get("/"), |request, header| {
            let value = HeaderValue::from_bytes(header.1.as_bytes()).unwrap();
            request.header(header.0, value)
        });
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn any_header_may_be_read_so_none_may_have_two_values() {
        let is_known = |name: &str| name == "x_known";
        let read = |headers: &[(&str, &str)]| {
            let head = head(headers);
            let read = read_all(&head, is_known)?.into_iter();
            let read = read.map(|(name, value)| format!("{name}={}", value.escape_ascii()));
            Ok(read.collect::<Vec<_>>().join(" "))
        };
        for (headers, expected) in [
            (
                &[("a", "1"), ("a", "2")][..],
                Err(BadRequest::ConflictingValues),
            ),
            (&[("a", "1"), ("a", "1 ")], Ok("a=1")),
            (&[("a", "1\u{a0}")], Err(BadRequest::UnclearValue)),
            (&[("a", "=?utf-8?q?1?=")], Err(BadRequest::UnclearValue)),
            // Lists may be repeated, and withheld headers are not read.
            (&[("via", "1"), ("via", "2")], Ok("via=1")),
            (
                &[("via", "1"), ("via", "2\u{a0}")],
                Err(BadRequest::UnclearValue),
            ),
            (
                &[("authorization", "a b\u{a0}"), ("authorization", "c")],
                Ok("authorization=a b\\xc2\\xa0"),
            ),
            (&[("cookie", "a=1"), ("cookie", "b=2")], Ok("cookie=a=1")),
            // Only names that no server takes for another are read.
            (
                &[("a_b", "1"), ("x_known", "2"), ("a-b", "3")],
                Ok("x_known=2 a-b=3"),
            ),
            (&[("a.b", "1"), ("a.b", "2")], Ok("")),
        ] {
            assert_eq!(read(headers), expected.map(str::to_owned), "{headers:?}");
        }
    }
}
