//! What the reading of requests promises of any bytes.

use std::net::IpAddr;

use fluxgate_core::RequestPath;
use http::request::Parts;

use super::super::request::PlainRequest;
use super::super::write;
use super::Seen;
use crate::gateway::forwarded::Forwarded;
use crate::gateway::outgoing::origin_form;
use crate::gateway::strict;

/// A request is found in exactly its own bytes, the way for all requests would take
/// it for the same, and what an upstream gets of it can be read in one way only.
pub(crate) fn request(bytes: &[u8]) {
    let Some(request) = PlainRequest::parse(bytes) else {
        return;
    };
    let own = &bytes[..request.length];
    assert_eq!(&own[request.head..], request.body);
    let again = PlainRequest::parse(own).expect("it is there as a whole");
    assert_eq!(format!("{again:?}"), format!("{request:?}"));
    for end in (0..own.len()).rev().step_by(1 + own.len() / 64) {
        assert!(PlainRequest::parse(&own[..end]).is_none(), "at {end}");
    }
    is_taken_by_all(&request, &own[..request.head]);
    for is_trusted in [false, true] {
        is_forwarded_as_it_is(&request, is_trusted);
    }
}

/// Both ways read the path of a target as `expected`, or leave it, and pass it on as it is.
pub(crate) fn target(path: &str, expected: Option<&RequestPath<'_>>) {
    let bytes = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let has_query = path.contains(['?', '#']);
    if let Some(plain) = PlainRequest::parse(bytes.as_bytes()) {
        request(bytes.as_bytes());
        assert!(has_query || Some(&plain.path) == expected, "{path:?}");
        assert_eq!(plain.target, path);
    }
    let built = http::Request::get(path).header("host", "a").body(());
    if let (Ok(built), false) = (built, has_query) {
        let (parts, ()): (Parts, ()) = built.into_parts();
        let checked = strict::check(&parts).ok();
        let checked = checked.map(|(path, _)| path);
        assert_eq!(checked.as_ref(), expected, "{path:?}");
        assert_eq!(origin_form(&parts.uri), path);
    }
}

/// The checks for all requests find nothing either, and the same host and path.
fn is_taken_by_all(request: &PlainRequest<'_>, head: &[u8]) {
    let mut room = [httparse::EMPTY_HEADER; 64];
    let mut seen = httparse::Request::new(&mut room);
    let parsed = seen.parse(head);
    assert_eq!(parsed, Ok(httparse::Status::Complete(head.len())));
    let mut builder = http::Request::builder()
        .method(request.method)
        .uri(request.target);
    for header in seen.headers {
        builder = builder.header(header.name, header.value);
    }
    let built = builder.body(()).expect("the library takes it, too");
    let (parts, ()): (Parts, ()) = built.into_parts();
    assert_eq!(parts.uri.path(), request.path.raw());
    let (path, host) = strict::check(&parts).expect("the strict checks take it, too");
    assert_eq!((path, &*host), (request.path.borrowed(), request.host));
}

fn is_forwarded_as_it_is(request: &PlainRequest<'_>, is_trusted: bool) {
    let forwarded = Forwarded {
        peer: IpAddr::from([127, 0, 0, 1]),
        is_trusted,
        is_secure: false,
        host: request.host,
        port: 8080,
    };
    let mut written = Vec::new();
    write::request(&mut written, request, &forwarded, "id", &mut Vec::new());
    let mut room = [httparse::EMPTY_HEADER; 64];
    let mut seen = httparse::Request::new(&mut room);
    let Ok(httparse::Status::Complete(end)) = seen.parse(&written) else {
        panic!("no request is written: {}", written.escape_ascii());
    };
    let (head, body) = written.split_at(end);
    assert_eq!(body, request.body);
    assert_eq!(seen.version, Some(1));
    assert_eq!(
        (seen.method, seen.path),
        (Some(request.method), Some(request.target))
    );
    let seen = Seen::new(head, seen.headers);
    seen.has_nothing_of_connections();
    assert!(seen.all("transfer-encoding").is_empty());
    for name in ["expect", "http2-settings"] {
        assert!(seen.all(name).is_empty(), "{name}");
    }
    assert_eq!(seen.all("host"), [request.host.as_bytes()]);
    assert_eq!(seen.all(write::REQUEST_ID), [b"id"]);
    assert_eq!(seen.length().unwrap_or(0), body.len() as u64);
    for name in ["x-forwarded-for", "x-forwarded-host", "forwarded"] {
        assert_eq!(seen.all(name).len(), 1, "{name}");
    }
    if !is_trusted {
        assert_eq!(seen.all("x-forwarded-for"), [b"127.0.0.1"]);
        assert!(seen.all("x-real-ip").is_empty());
    }
}
