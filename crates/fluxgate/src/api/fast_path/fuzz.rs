//! Properties of simple requests that hold for any bytes.

use super::simple_request;

/// Checks that a simple request in arbitrary bytes is recognized from exactly its own bytes.
pub(crate) fn request(bytes: &[u8]) {
    let Some((request, length)) = simple_request(bytes) else {
        return;
    };
    let own = &bytes[..length];
    assert!(own.ends_with(request.body));
    let (again, again_length) = simple_request(own).expect("the request is complete");
    assert_eq!((again.body, again_length), (request.body, length));
    assert_eq!(again.request_id, request.request_id);
    assert_eq!(again.traceparent, request.traceparent);
    for end in (0..length).rev().step_by(1 + length / 64) {
        assert!(
            simple_request(&own[..end]).is_none(),
            "at {end} of {length}"
        );
    }
    let head = &own[..length - request.body.len()];
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed_head = httparse::Request::new(&mut headers);
    let parsed = parsed_head.parse(head);
    assert_eq!(parsed, Ok(httparse::Status::Complete(head.len())));
    let values = |name: &str| {
        let headers = parsed_head.headers.iter();
        let named = headers.filter(|header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value).collect::<Vec<_>>()
    };
    let lengths = values("content-length");
    assert_eq!(lengths.len(), 1);
    let length = std::str::from_utf8(lengths[0]).map(str::parse::<usize>);
    assert_eq!(length, Ok(Ok(request.body.len())));
    assert!(values("transfer-encoding").is_empty());
}
