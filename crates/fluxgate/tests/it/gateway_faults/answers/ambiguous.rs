//! Heads that say two things.

use super::{bad, clean, run};

fn ok(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}\r\n{body}")
}

const CHUNKED: &str = "5\r\nhello\r\n0\r\n\r\n";

#[test]
fn plain_answers_are_passed_on() {
    run(vec![
        clean(ok("Content-Length: 5\r\n", "hello"), 200, "hello"),
        clean(ok("Transfer-Encoding: chunked\r\n", CHUNKED), 200, "hello"),
        clean(ok("", "hello"), 200, "hello").then_close(),
        clean("HTTP/1.0 200 OK\r\n\r\nhello", 200, "hello").then_close(),
        clean(
            ok("Content-Length: 5\r\nConnection: close\r\n", "hello"),
            200,
            "hello",
        )
        .then_close(),
        clean("HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
        clean(
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            304,
            "",
        ),
        clean("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, ""),
    ]);
}

#[test]
fn two_framings_never_reach_a_client() {
    run(vec![
        clean(
            ok(
                "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
                CHUNKED,
            ),
            200,
            "hello",
        )
        .then_close(),
        clean(
            ok(
                "Transfer-Encoding: chunked\r\nContent-Length: 15\r\n",
                CHUNKED,
            ),
            200,
            "hello",
        )
        .then_close(),
        clean(
            ok("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
            200,
            "hello",
        ),
        clean(ok("Content-Length: 5, 5\r\n", "hello"), 200, "hello"),
        bad(ok("Content-Length: 5\r\nContent-Length: 6\r\n", "hello")).then_close(),
        bad(ok("Content-Length: 5, 6\r\n", "hello")).then_close(),
        bad(ok("Content-Length: +5\r\n", "hello")).then_close(),
        bad(ok("Content-Length: -5\r\n", "hello")).then_close(),
        bad(ok("Content-Length: 5x\r\n", "hello")).then_close(),
        bad("HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n").then_close(),
        bad("HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n").then_close(),
        bad(ok("Content-Length: 18446744073709551621\r\n", "hello")).then_close(),
        // RFC 9112, 6.3: then it lasts until the end of the connection.
        clean(ok("Transfer-Encoding: identity\r\n", "hello"), 200, "hello").then_close(),
        clean(ok("Transfer-Encoding: xchunked\r\n", "hello"), 200, "hello").then_close(),
        clean(
            ok("Transfer-Encoding: chunked, identity\r\n", "hello"),
            200,
            "hello",
        )
        .then_close(),
        bad(ok("Transfer-Encoding: chunked, chunked\r\n", CHUNKED)).then_close(),
        bad(ok("Transfer-Encoding : chunked\r\n", CHUNKED)).then_close(),
    ]);
}

#[test]
fn bad_lines_never_reach_a_client() {
    run(vec![
        clean(
            ok("X: y\r\n z\r\nContent-Length: 5\r\n", "hello"),
            200,
            "hello",
        )
        .then_close(),
        clean(ok("X: y\nContent-Length: 5\r\n", "hello"), 200, "hello").then_close(),
        clean(
            ok("X: a\x01b\r\nContent-Length: 5\r\n", "hello"),
            200,
            "hello",
        )
        .then_close(),
        bad(ok("X: a\0b\r\nContent-Length: 5\r\n", "hello")).then_close(),
        bad(ok("X: y\rZ: z\r\nContent-Length: 5\r\n", "hello")).then_close(),
        clean(ok("X : y\r\nContent-Length: 5\r\n", "hello"), 200, "hello").then_close(),
        clean(
            ok("no colon\r\nContent-Length: 5\r\n", "hello"),
            200,
            "hello",
        )
        .then_close(),
        bad(ok(": no name\r\nContent-Length: 5\r\n", "hello")).then_close(),
        bad("hello\r\n\r\n").then_close(),
        bad("<html>hello</html>").then_close(),
        bad("\0\x01\x02\x03").then_close(),
        bad("HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n").then_close(),
        bad("HTTP/1.1 99 Low\r\nContent-Length: 0\r\n\r\n").then_close(),
        bad("HTTP/1.1 2000 High\r\nContent-Length: 0\r\n\r\n").then_close(),
        bad("HTTP/1.1 -20 Odd\r\nContent-Length: 0\r\n\r\n").then_close(),
        bad("HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n").then_close(),
        bad("HTTP/1.1200 OK\r\nContent-Length: 0\r\n\r\n").then_close(),
        bad("ICY 200 OK\r\nContent-Length: 0\r\n\r\n").then_close(),
        bad("").then_close(),
        bad("HTTP/1.1 200 OK\r\nContent-Le").then_close(),
    ]);
}

#[test]
fn heads_without_an_end_are_cut() {
    let value = "v".repeat(20_000_000);
    let many: String = (0..200_000).map(|n| format!("X-{n}: {n}\r\n")).collect();
    run(vec![
        bad(ok(&format!("X: {value}\r\nContent-Length: 0\r\n"), "")).then_close(),
        bad(ok(&format!("{many}Content-Length: 0\r\n"), "")).then_close(),
        bad(format!("HTTP/1.1 200 {value}\r\nContent-Length: 0\r\n\r\n")).then_close(),
    ]);
}

#[test]
fn interim_answers_do_not_hide_the_last() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    run(vec![
        clean(format!("HTTP/1.1 100 Continue\r\n\r\n{ok}"), 200, "hello"),
        clean(
            format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{ok}"),
            200,
            "hello",
        ),
        clean(
            "HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000) + ok,
            200,
            "hello",
        ),
        clean(
            "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(10_000) + ok,
            200,
            "hello",
        ),
        // Nobody asked for another protocol.
        bad(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n{ok}"
        )),
        bad("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        // No status, and so none of those that come before the last.
        bad(format!(
            "HTTP/1.1 099 Low\r\nContent-Length: {}\r\n\r\n{ok}",
            ok.len()
        )),
    ]);
}
