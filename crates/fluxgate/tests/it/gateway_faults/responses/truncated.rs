//! Truncated and malformed response bodies: no client takes them for complete.

use super::{invalid, run};

fn chunked(body: &str) -> super::Case {
    invalid(format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
    ))
}

#[test]
fn truncated_bodies_are_aborted() {
    let length = |body: &str| {
        invalid(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{body}"
        ))
    };
    run(vec![
        length("").then_close(),
        length("hello").then_close(),
        length("123456789").then_close(),
        chunked("").then_close(),
        chunked("5").then_close(),
        chunked("5\r\n").then_close(),
        chunked("5\r\nhel").then_close(),
        chunked("5\r\nhello").then_close(),
        chunked("5\r\nhello\r\n").then_close(),
        chunked("5\r\nhello\r\n0").then_close(),
        chunked("5\r\nhello\r\n0\r\n").then_close(),
        chunked("5\r\nhello\r\n0\r\nX: y\r\n").then_close(),
    ]);
}

#[test]
fn malformed_chunks_are_aborted() {
    run(vec![
        chunked("0x5\r\nhello\r\n0\r\n\r\n"),
        chunked("-5\r\nhello\r\n0\r\n\r\n"),
        chunked("+5\r\nhello\r\n0\r\n\r\n"),
        chunked("5\r\nhelloXX0\r\n\r\n"),
        chunked("5\r\nhello world\r\n0\r\n\r\n"),
        chunked("10000000000000005\r\nhello\r\n0\r\n\r\n"),
        chunked("\r\nhello\r\n0\r\n\r\n"),
        chunked("5\r\nhello\r\n\r\n"),
    ]);
}
