//! Ambiguous and malformed response heads.

use super::{invalid, run, valid};

fn ok(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}\r\n{body}")
}

const CHUNKED: &str = "5\r\nhello\r\n0\r\n\r\n";

#[test]
fn valid_responses_are_forwarded() {
    run(vec![
        valid(ok("Content-Length: 5\r\n", "hello"), 200, "hello"),
        valid(ok("Transfer-Encoding: chunked\r\n", CHUNKED), 200, "hello"),
        valid(ok("", "hello"), 200, "hello").then_close(),
        valid("HTTP/1.0 200 OK\r\n\r\nhello", 200, "hello").then_close(),
        valid(
            ok("Content-Length: 5\r\nConnection: close\r\n", "hello"),
            200,
            "hello",
        )
        .then_close(),
        valid("HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
        valid(
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            304,
            "",
        ),
        valid("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, ""),
    ]);
}

#[test]
fn ambiguous_framing_never_reaches_a_client() {
    run(vec![
        valid(
            ok(
                "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
                CHUNKED,
            ),
            200,
            "hello",
        )
        .then_close(),
        valid(
            ok(
                "Transfer-Encoding: chunked\r\nContent-Length: 15\r\n",
                CHUNKED,
            ),
            200,
            "hello",
        )
        .then_close(),
        valid(
            ok("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
            200,
            "hello",
        ),
        valid(ok("Content-Length: 5, 5\r\n", "hello"), 200, "hello"),
        invalid(ok("Content-Length: 5\r\nContent-Length: 6\r\n", "hello")).then_close(),
        invalid(ok("Content-Length: 5, 6\r\n", "hello")).then_close(),
        invalid(ok("Content-Length: +5\r\n", "hello")).then_close(),
        invalid(ok("Content-Length: -5\r\n", "hello")).then_close(),
        invalid(ok("Content-Length: 5x\r\n", "hello")).then_close(),
        invalid("HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n").then_close(),
        invalid("HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n").then_close(),
        invalid(ok("Content-Length: 18446744073709551621\r\n", "hello")).then_close(),
        // RFC 9112, section 6.3: such a body lasts until the connection closes.
        valid(ok("Transfer-Encoding: identity\r\n", "hello"), 200, "hello").then_close(),
        valid(ok("Transfer-Encoding: xchunked\r\n", "hello"), 200, "hello").then_close(),
        valid(
            ok("Transfer-Encoding: chunked, identity\r\n", "hello"),
            200,
            "hello",
        )
        .then_close(),
        invalid(ok("Transfer-Encoding: chunked, chunked\r\n", CHUNKED)).then_close(),
        invalid(ok("Transfer-Encoding : chunked\r\n", CHUNKED)).then_close(),
    ]);
}

#[test]
fn malformed_lines_never_reach_a_client() {
    run(vec![
        valid(
            ok("X: y\r\n z\r\nContent-Length: 5\r\n", "hello"),
            200,
            "hello",
        )
        .then_close(),
        valid(ok("X: y\nContent-Length: 5\r\n", "hello"), 200, "hello").then_close(),
        valid(
            ok("X: a\x01b\r\nContent-Length: 5\r\n", "hello"),
            200,
            "hello",
        )
        .then_close(),
        invalid(ok("X: a\0b\r\nContent-Length: 5\r\n", "hello")).then_close(),
        invalid(ok("X: y\rZ: z\r\nContent-Length: 5\r\n", "hello")).then_close(),
        valid(ok("X : y\r\nContent-Length: 5\r\n", "hello"), 200, "hello").then_close(),
        valid(
            ok("no colon\r\nContent-Length: 5\r\n", "hello"),
            200,
            "hello",
        )
        .then_close(),
        invalid(ok(": no name\r\nContent-Length: 5\r\n", "hello")).then_close(),
        invalid("hello\r\n\r\n").then_close(),
        invalid("<html>hello</html>").then_close(),
        invalid("\0\x01\x02\x03").then_close(),
        invalid("HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n").then_close(),
        invalid("HTTP/1.1 99 Low\r\nContent-Length: 0\r\n\r\n").then_close(),
        invalid("HTTP/1.1 2000 High\r\nContent-Length: 0\r\n\r\n").then_close(),
        invalid("HTTP/1.1 -20 Odd\r\nContent-Length: 0\r\n\r\n").then_close(),
        invalid("HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n").then_close(),
        invalid("HTTP/1.1200 OK\r\nContent-Length: 0\r\n\r\n").then_close(),
        invalid("ICY 200 OK\r\nContent-Length: 0\r\n\r\n").then_close(),
        invalid("").then_close(),
        invalid("HTTP/1.1 200 OK\r\nContent-Le").then_close(),
    ]);
}

#[test]
fn endless_heads_are_aborted() {
    let value = "v".repeat(20_000_000);
    let many: String = (0..200_000).map(|n| format!("X-{n}: {n}\r\n")).collect();
    run(vec![
        invalid(ok(&format!("X: {value}\r\nContent-Length: 0\r\n"), "")).then_close(),
        invalid(ok(&format!("{many}Content-Length: 0\r\n"), "")).then_close(),
        invalid(format!("HTTP/1.1 200 {value}\r\nContent-Length: 0\r\n\r\n")).then_close(),
    ]);
}

#[test]
fn interim_responses_do_not_hide_the_final_one() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    run(vec![
        valid(format!("HTTP/1.1 100 Continue\r\n\r\n{ok}"), 200, "hello"),
        valid(
            format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{ok}"),
            200,
            "hello",
        ),
        valid(
            "HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000) + ok,
            200,
            "hello",
        ),
        valid(
            "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(10_000) + ok,
            200,
            "hello",
        ),
        // The client did not request an upgrade.
        invalid(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n{ok}"
        )),
        invalid("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        // Not a valid status, so not an interim response either.
        invalid(format!(
            "HTTP/1.1 099 Low\r\nContent-Length: {}\r\n\r\n{ok}",
            ok.len()
        )),
    ]);
}
