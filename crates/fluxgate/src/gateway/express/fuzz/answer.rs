//! What the reading of answers promises of any bytes.

use std::time::SystemTime;

use super::super::answer::{AnswerHead, Framing, NoHead};
use super::Seen;

/// What is written of a head can be read in one way only: the one in which it was
/// read.
pub(crate) fn answer(bytes: &[u8]) {
    for to_head in [false, true] {
        let Ok(head) = AnswerHead::parse(bytes, to_head) else {
            continue;
        };
        let own = &bytes[..head.length];
        // As it comes, piece by piece.
        for end in (0..own.len()).rev().step_by(1 + own.len() / 64) {
            let cut = AnswerHead::parse(&own[..end], to_head);
            assert_eq!(cut.err(), Some(NoHead::Incomplete), "{end}");
        }
        let written = written(&head);
        let again = AnswerHead::parse(own, to_head).expect("it is there as a whole");
        assert_eq!(self::written(&again), written);
        assert!((100..1000).contains(&head.status));
        // Those that come before the one that counts are not passed on.
        if head.status >= 200 {
            is_unambiguous(&head, &written, to_head);
        }
    }
}

fn written(head: &AnswerHead<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    head.write(&mut out, SystemTime::UNIX_EPOCH, |name| {
        name.eq_ignore_ascii_case("x-request-id")
    });
    out.extend_from_slice(b"\r\n");
    out
}

fn is_unambiguous(head: &AnswerHead<'_>, written: &[u8], to_head: bool) {
    let mut room = [httparse::EMPTY_HEADER; 128];
    let mut response = httparse::Response::new(&mut room);
    let parsed = response.parse(written);
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
    let seen = Seen::new(written, response.headers);
    seen.has_nothing_of_connections();
    assert!(seen.all("x-request-id").is_empty());
    assert!(!seen.all("date").is_empty(), "{shown}");
    let codings = seen.all("transfer-encoding");
    match head.framing {
        Framing::None => {
            assert!(to_head || matches!(head.status, 204 | 304));
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
