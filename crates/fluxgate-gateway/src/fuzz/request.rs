//! What the parser of the fast path guarantees for any bytes.

use std::collections::HashSet;

use fluxgate_core::path::RequestPath;
use fluxgate_http::RequestHead as _;
use http::request::Parts;

use super::WrittenHead;
use crate::fast_path::{FastRequest, Headers};
use crate::http_server::origin_form;
use crate::received_request::{ConnectionInfo, ReceivedRequest};
use crate::request_checks;
use crate::upstream_request::{ForwardingContext, RequestOptions, write_head};

/// A request is found in exactly its own bytes, hyper's path would read it in the same way,
/// and what an upstream gets can be read in one way only.
pub fn request(bytes: &[u8]) {
    let (mut headers, mut again) = (Headers::new(), Headers::new());
    let Some(request) = FastRequest::parse(bytes, &mut headers) else {
        return;
    };
    let own = &bytes[..request.length];
    assert_eq!(&own[request.head..], request.body);
    let again = FastRequest::parse(own, &mut again).expect("it is complete");
    assert_eq!(format!("{again:?}"), format!("{request:?}"));
    for end in (0..own.len()).rev().step_by(1 + own.len() / 64) {
        let cut = FastRequest::parse(&own[..end], &mut Headers::new()).is_some();
        assert!(!cut, "at {end}");
    }
    check_same_on_hyper(&request, &own[..request.head]);
    for is_trusted in [false, true] {
        check_written(&request, is_trusted);
    }
}

/// Both paths read the path of a target as `expected` or reject it, and forward the target
/// unchanged.
pub fn target(path: &str, expected: Option<&RequestPath<'_>>) {
    let bytes = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let has_query = path.contains(['?', '#']);
    let mut headers = Headers::new();
    if let Some(parsed) = FastRequest::parse(bytes.as_bytes(), &mut headers) {
        request(bytes.as_bytes());
        assert!(has_query || Some(&parsed.path) == expected, "{path:?}");
        assert_eq!(parsed.target, path);
    }
    let built = http::Request::get(path).header("host", "a").body(());
    if let (Ok(built), false) = (built, has_query) {
        let (parts, ()): (Parts, ()) = built.into_parts();
        let checked = request_checks::check(&parts).ok();
        let checked = checked.map(|head| head.path);
        assert_eq!(checked.as_ref(), expected, "{path:?}");
        assert_eq!(origin_form(&parts.uri), path);
    }
}

/// The checks of hyper's path accept the request, and find the same host and path.
fn check_same_on_hyper(request: &FastRequest<'_>, head: &[u8]) {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut seen = httparse::Request::new(&mut headers);
    let parsed = seen.parse(head);
    assert_eq!(parsed, Ok(httparse::Status::Complete(head.len())));
    let mut builder = http::Request::builder()
        .method(request.method)
        .uri(request.target);
    for header in seen.headers {
        builder = builder.header(header.name, header.value);
    }
    let built = builder.body(()).expect("the library accepts it");
    let (parts, ()): (Parts, ()) = built.into_parts();
    assert_eq!(parts.uri.path(), request.path.raw());
    let checked = request_checks::check(&parts).expect("the checks accept it");
    // The fast path leaves `Connection` out.
    let names = request.all_headers();
    let names: Vec<_> = names.map(|(name, _)| name.to_ascii_lowercase()).collect();
    let repeats = names.iter().collect::<HashSet<_>>().len() < names.len();
    assert_eq!(request.may_repeat_headers(), repeats);
    assert_eq!(
        (checked.path, checked.host),
        (request.path.borrowed(), request.host)
    );
}

fn check_written(request: &FastRequest<'_>, is_trusted: bool) {
    let received = ReceivedRequest {
        head: request,
        path: &request.path,
        host: request.host,
        connection: &[],
        body_length: Some(request.body.len() as u64),
        upgrades: false,
        client: &ConnectionInfo::new(([127, 0, 0, 1], 4000).into(), 8080, false),
    };
    let context = ForwardingContext {
        traceparent: None,
        request_id: "id",
        is_trusted,
        default_host: "unused",
        repeats_identity: None,
        own_host: None,
        edits: None,
        reads_odd_headers: false,
    };
    let options = RequestOptions {
        target: request.target,
        ..RequestOptions::default()
    };
    let (mut written, mut scratch) = (Vec::new(), Vec::new());
    let out = (&mut written, &mut scratch);
    write_head(out, &received, context, options, |_| false);
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut seen = httparse::Request::new(&mut headers);
    assert_eq!(
        seen.parse(&written),
        Ok(httparse::Status::Complete(written.len())),
        "{}",
        written.escape_ascii()
    );
    assert_eq!(seen.version, Some(1));
    assert_eq!(
        (seen.method, seen.path),
        (Some(request.method), Some(request.target))
    );
    let seen = WrittenHead::new(&written, seen.headers);
    seen.check_end_to_end();
    for name in ["transfer-encoding", "expect", "http2-settings"] {
        assert!(seen.all(name).is_empty(), "{name}");
    }
    assert_eq!(seen.all("host"), [request.host.as_bytes()]);
    assert_eq!(seen.all("x-request-id"), [b"id"]);
    assert_eq!(seen.length().unwrap_or(0), request.body.len() as u64);
    for name in ["x-forwarded-for", "x-forwarded-host", "forwarded"] {
        assert_eq!(seen.all(name).len(), 1, "{name}");
    }
    if !is_trusted {
        assert_eq!(seen.all("x-forwarded-for"), [b"127.0.0.1"]);
        for name in ["x-real-ip", "x-original-url", "x-rewrite-url"] {
            assert!(seen.all(name).is_empty(), "{name}");
        }
    }
}
