//! What the parser of response heads guarantees for any bytes.

use fluxgate_http::LimitHeaders;

use super::WrittenHead;
use crate::exchange::{ExpectedResponse, Framing, HeadError, ResponseHead};
use crate::fast_path::write_response_head;
use crate::rewrite::ResponseChanges;

/// The head that is written can be read in one way only: the way in which it was parsed.
pub fn response(bytes: &[u8]) {
    for head_only in [false, true] {
        let wanted = ExpectedResponse {
            head_only,
            ..ExpectedResponse::default()
        };
        let Ok(head) = ResponseHead::parse(bytes, wanted) else {
            continue;
        };
        let own = &bytes[..head.length];
        // As it arrives, piece by piece.
        for end in (0..own.len()).rev().step_by(1 + own.len() / 64) {
            let cut = ResponseHead::parse(&own[..end], wanted);
            assert_eq!(cut.err(), Some(HeadError::Incomplete), "{end}");
        }
        assert!((100..1000).contains(&head.status));
        // Interim responses are not forwarded.
        if head.status >= 200 {
            check_written(&head, head_only);
        }
    }
}

fn check_written(head: &ResponseHead<'_>, head_only: bool) {
    let mut written = Vec::new();
    let changes = ResponseChanges::default();
    write_response_head(
        &mut written,
        head,
        false,
        &LimitHeaders::default(),
        &changes,
    );
    written.extend_from_slice(b"\r\n");
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(&written);
    let shown = written.escape_ascii();
    assert_eq!(
        parsed,
        Ok(httparse::Status::Complete(written.len())),
        "{shown}"
    );
    assert_eq!(
        (response.version, response.code),
        (Some(1), Some(head.status))
    );
    let seen = WrittenHead::new(&written, response.headers);
    seen.check_end_to_end();
    assert!(seen.all("x-request-id").is_empty());
    assert!(!seen.all("date").is_empty(), "{shown}");
    let codings = seen.all("transfer-encoding");
    match head.framing {
        Framing::None => {
            assert!(head_only || matches!(head.status, 204 | 304));
            assert!(codings.is_empty(), "{shown}");
            assert!(head.status != 204 || seen.length().is_none());
        }
        Framing::Length(length) => {
            assert_eq!((seen.length(), codings.len()), (Some(length), 0), "{shown}");
        }
        Framing::Chunked | Framing::UntilClose => {
            assert_eq!((seen.length(), codings), (None, vec![&b"chunked"[..]]));
        }
    }
    assert!(head.framing != Framing::UntilClose || !head.keeps_alive);
}
