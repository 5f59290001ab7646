//! What must hold for arbitrary bytes.

use super::simple_check;

/// A check is recognized by exactly its own bytes, and ends with its body.
pub(crate) fn check(bytes: &[u8]) {
    let Some((check, length)) = simple_check(bytes) else {
        return;
    };
    let own = &bytes[..length];
    assert!(own.ends_with(check.body));
    let (again, again_length) = simple_check(own).expect("it is there as a whole");
    assert_eq!((again.body, again_length), (check.body, length));
    assert_eq!(again.request_id, check.request_id);
    assert_eq!(again.traceparent, check.traceparent);
    for end in (0..length).rev().step_by(1 + length / 64) {
        assert!(simple_check(&own[..end]).is_none(), "at {end} of {length}");
    }
    let head = &own[..length - check.body.len()];
    let mut room = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut room);
    let parsed = request.parse(head);
    assert_eq!(parsed, Ok(httparse::Status::Complete(head.len())));
    let values = |name: &str| {
        let headers = request.headers.iter();
        let named = headers.filter(|header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value).collect::<Vec<_>>()
    };
    let lengths = values("content-length");
    assert_eq!(lengths.len(), 1);
    let said = std::str::from_utf8(lengths[0]).map(str::parse::<usize>);
    assert_eq!(said, Ok(Ok(check.body.len())));
    assert!(values("transfer-encoding").is_empty());
}
