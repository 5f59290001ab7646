//! Writes the head of a request as an upstream gets it.

use fluxgate_http::server::{Origin, request_id, write_header};
use fluxgate_http::{RequestHead, are_alike, imitates_proxy_header, is_plain_name};
use http::HeaderName;
use smallvec::SmallVec;

use crate::admission::{Admission, AdmissionPolicy};
use crate::config::{HeaderEdits, HostRewrite};
use crate::engine::Engine;
use crate::forwarded_headers::{ForwardedHeaders, is_forwarding_header};
use crate::hop_by_hop::{HeaderKind, connection_options, is_forwarded_trailer};
use crate::received_request::ReceivedRequest;
use crate::routes::Route;

const TRACEPARENT: &str = "traceparent";

/// What the head says besides the headers of the client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestOptions<'a> {
    /// The path and query.
    pub(crate) target: &'a str,
    /// Whether the length of the body is unknown.
    pub(crate) is_chunked: bool,
    /// The length of the body, if it replaces that of the client. Then the request also
    /// refuses encodings, so that the response can be read.
    pub(crate) replaced_body: Option<usize>,
    /// Whether the client accepts trailers.
    pub(crate) trailers: bool,
    /// The protocol that the client asks to switch to.
    pub(crate) upgrade: Option<&'a [u8]>,
}

/// What the gateway adds to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardingContext<'a> {
    pub(crate) request_id: &'a str,
    /// The `traceparent` instead of that of the client, if the request has a span of its own.
    pub(crate) traceparent: Option<&'a str>,
    /// Whether the peer is a trusted proxy.
    pub(crate) is_trusted: bool,
    /// The host, if the request names none.
    pub(crate) default_host: &'a str,
    /// The host instead of that of the request.
    pub(crate) own_host: Option<&'a str>,
    /// Headers that are set or removed.
    pub(crate) edits: Option<&'a HeaderEdits>,
    /// The route, if the request repeats a header that identifies the sender.
    pub(crate) repeats_identity: Option<&'a Route>,
    /// Whether requests are routed or counted by a header whose name is not plain, so that a
    /// plain name may be alike to it.
    pub(crate) reads_odd_headers: bool,
}

/// Appends the head of an admitted request as it is forwarded. `scratch` is a temporary buffer.
pub(crate) fn write_request<E: Engine, H: RequestHead>(
    policy: &AdmissionPolicy<E>,
    (out, scratch): (&mut Vec<u8>, &mut Vec<u8>),
    request: &ReceivedRequest<'_, H>,
    admission: &Admission<'_>,
    origin: &Origin<'_>,
    options: RequestOptions<'_>,
) {
    let route = admission.route;
    let own_trace = origin.traceparent.filter(|own| {
        let received = request.head.first_line(TRACEPARENT);
        received != Some(own.as_bytes())
    });
    let context = ForwardingContext {
        request_id: origin.request_id(),
        traceparent: own_trace,
        is_trusted: route.trusts(request.client.peer.ip()),
        default_host: &route.default_host,
        own_host: match &route.rewrite.host {
            HostRewrite::Name(name) => Some(name),
            HostRewrite::Client | HostRewrite::Upstream => None,
        },
        edits: Some(&route.request_headers).filter(|edits| !edits.is_empty()),
        repeats_identity: admission.repeats_identity.then_some(route),
        reads_odd_headers: policy.reads_odd_headers(route, origin),
    };
    let is_alike = |name: &str| policy.is_alike_header(route, name, origin);
    write_head((out, scratch), request, context, options, is_alike);
}

/// Appends the head of a request. `is_alike` returns whether servers may take a header for one that
/// requests are routed or counted by.
pub(crate) fn write_head<H: RequestHead>(
    (out, scratch): (&mut Vec<u8>, &mut Vec<u8>),
    request: &ReceivedRequest<'_, H>,
    context: ForwardingContext<'_>,
    options: RequestOptions<'_>,
    is_alike: impl Fn(&str) -> bool,
) {
    let head = request.head;
    let forwarded = ForwardedHeaders {
        client: request.client,
        is_trusted: context.is_trusted,
        host: request.host,
    };
    out.extend_from_slice(head.method().as_bytes());
    out.push(b' ');
    out.extend_from_slice(options.target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    match context.own_host.unwrap_or(request.host) {
        "" => write_header(out, "host", context.default_host.as_bytes()),
        host => write_header(out, "host", host.as_bytes()),
    }
    let is_named = |name: &str| {
        let mut named = request.connection.iter();
        named.any(|known| known.eq_ignore_ascii_case(name.as_bytes()))
    };
    let mut once = SmallVec::<[&str; 2]>::new();
    for (name, value) in head.all_headers() {
        match HeaderKind::of(name) {
            HeaderKind::ContentLength if !options.is_chunked && options.replaced_body.is_none() => {
            }
            HeaderKind::EndToEnd if !is_named(name) => {}
            _ => continue,
        }
        if options.replaced_body.is_some() && is_dropped_from_calls(name) {
            continue;
        }
        let is_spoofed = || {
            (context.reads_odd_headers || !is_plain_name(name))
                && (imitates_proxy_header(name) || is_alike(name))
        };
        if is_written_anew(name, context.is_trusted) || is_spoofed() {
            continue;
        }
        if context.edits.is_some_and(|edits| edits.covers(name)) {
            continue;
        }
        if context.traceparent.is_some() && name.eq_ignore_ascii_case(TRACEPARENT) {
            continue;
        }
        let is_cookie = name.eq_ignore_ascii_case("cookie");
        let route = context.repeats_identity;
        if is_cookie || route.is_some_and(|route| route.is_identity(name)) {
            if once.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                continue;
            }
            once.push(name);
        }
        if is_cookie {
            write_cookies(out, head);
        } else {
            write_header(out, name, value);
        }
    }
    forwarded.write(head, scratch, |name, value| write_header(out, name, value));
    write_header(out, request_id::NAME, context.request_id.as_bytes());
    let is_edited = |name: &str| context.edits.is_some_and(|edits| edits.covers(name));
    if let Some(own) = context.traceparent.filter(|_| !is_edited(TRACEPARENT)) {
        write_header(out, TRACEPARENT, own.as_bytes());
    }
    for (name, value) in context.edits.iter().flat_map(|edits| &edits.set) {
        write_header(out, name, value.as_bytes());
    }
    if options.trailers {
        write_header(out, "te", b"trailers");
    }
    if let Some(protocol) = options.upgrade {
        write_header(out, "upgrade", protocol);
    }
    match (options.upgrade, options.trailers) {
        (Some(_), _) => write_header(out, "connection", b"upgrade"),
        (None, true) => write_header(out, "connection", b"te"),
        (None, false) => {}
    }
    if let Some(length) = options.replaced_body {
        write_header(out, "accept-encoding", b"identity");
        let mut digits = itoa::Buffer::new();
        write_header(out, "content-length", digits.format(length).as_bytes());
    } else if options.is_chunked {
        write_header(out, "transfer-encoding", b"chunked");
    }
    out.extend_from_slice(b"\r\n");
}

/// Returns the trailers that a request announces and that may follow its body over HTTP/2: none that
/// a server could take for a header which requests are routed or counted by, or which the gateway
/// sets. No rule has seen them.
pub(crate) fn announced_trailers<E: Engine>(
    policy: &AdmissionPolicy<E>,
    head: &impl RequestHead,
    route: &Route,
    origin: &Origin<'_>,
) -> Vec<HeaderName> {
    let is_allowed = |name: &HeaderName| {
        let text = name.as_str();
        is_forwarded_trailer(name)
            && is_plain_name(text)
            && !imitates_proxy_header(text)
            && !is_forwarding_header(text, false)
            && !policy.reads_header(route, text.as_bytes(), origin)
            && !policy.is_alike_header(route, text, origin)
    };
    let names = head.header_lines("trailer").flat_map(connection_options);
    let names = names.filter_map(|name| HeaderName::from_bytes(name).ok());
    names.filter(is_allowed).collect()
}

/// Returns whether a header is not forwarded with a call to a language model: it asks for an
/// answer in a form that cannot be counted, or servers may take it for one that says how to read
/// the body, although it is not.
fn is_dropped_from_calls(name: &str) -> bool {
    const ANSWER: [&str; 3] = ["accept-encoding", "range", "if-range"];
    const BODY: [&str; 3] = ["content-type", "content-encoding", "content-length"];
    let is_alike = |known: &&str| are_alike(known.as_bytes(), name.as_bytes());
    ANSWER.iter().any(is_alike) || { BODY.iter() }
        .any(|known| is_alike(known) && !name.eq_ignore_ascii_case(known))
}

/// Returns whether the gateway writes a header itself. First a cheap test: all their names
/// begin with `x` or `f`.
fn is_written_anew(name: &str, is_trusted: bool) -> bool {
    let may_be = matches!(name.as_bytes().first(), Some(b'x' | b'X' | b'f' | b'F'));
    may_be
        && (name.eq_ignore_ascii_case(request_id::NAME) || is_forwarding_header(name, is_trusted))
}

/// Appends all cookies. HTTP/2 may send them one by one; in HTTP/1.1 they are one line.
fn write_cookies(out: &mut Vec<u8>, head: &impl RequestHead) {
    out.extend_from_slice(b"cookie: ");
    for (index, line) in head.header_lines("cookie").enumerate() {
        out.extend_from_slice(if index > 0 { b"; " } else { b"" });
        out.extend_from_slice(line);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_no_header_that_makes_them_or_their_answers_uncountable() {
        for name in [
            "Accept-Encoding",
            "accept_encoding",
            "-Range",
            "If.Range",
            "Content_Type",
            "_content-length",
            "content.encoding~",
        ] {
            assert!(is_dropped_from_calls(name), "{name}");
        }
        for name in [
            "Content-Type",
            "content-length",
            "Content-Encoding",
            "Content-Typ",
            "Accept",
            "Ranges",
        ] {
            assert!(!is_dropped_from_calls(name), "{name}");
        }
    }
}
