//! Malformed header lines.

use super::{either, forwarded, get, post, rejected, run};

/// Returns `GET /x` whose header lines end with `end`; the request line ends with CRLF.
fn with_line_ends(end: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: a.example{end}X: y{end}{end}")
}

#[test]
fn bare_line_ends_are_rejected_or_normalized() {
    run(&[
        either(with_line_ends("\n"), "GET /x", ""),
        either("GET /x HTTP/1.1\nHost: a.example\n\n", "GET /x", ""),
        either(
            "GET /x HTTP/1.1\r\nHost: a.example\r\nX: y\r\n\n",
            "GET /x",
            "",
        ),
        either(
            "POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\n\r\nhello",
            "POST /x",
            "hello",
        ),
        either(
            "POST /x HTTP/1.1\r\nHost: a.example\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /x",
            "",
        ),
        rejected(get("X: y\rTransfer-Encoding: chunked\r\n")),
        rejected(get("X: y\r\rZ: z\r\n")),
        rejected(get("X: y\r Z: z\r\n")),
        rejected("GET /x HTTP/1.1\rHost: a.example\r\n\r\n"),
        rejected("GET /x HTTP/1.1\r\nHost: a.example\r\n\rX: y\r\n\r\n"),
        rejected(get("X\r: y\r\n")),
        rejected(get("X\n: y\r\n")),
    ]);
}

#[test]
fn control_characters_are_rejected_or_replaced() {
    let mut cases = Vec::new();
    for byte in (0..0x20u8).chain([0x7f]) {
        if b"\t\r\n".contains(&byte) {
            continue;
        }
        let with = |before: &str, after: &str| {
            let mut bytes = before.as_bytes().to_vec();
            bytes.push(byte);
            bytes.extend_from_slice(after.as_bytes());
            bytes
        };
        let head = "GET /x HTTP/1.1\r\nHost: a.example\r\n";
        cases.push(rejected(with(&format!("{head}X-A"), "B: y\r\n\r\n")));
        cases.push(rejected(with(&format!("{head}X-A"), ": y\r\n\r\n")));
        cases.push(rejected(with(head, "X-A: y\r\n\r\n")));
        // RFC 9110, section 5.5 demands this of CR, LF and NUL; other control characters
        // may be kept.
        cases.push(either(
            with(&format!("{head}X-A: y"), "z\r\n\r\n"),
            "GET /x",
            "",
        ));
        cases.push(rejected(with(
            "GET /x",
            "y HTTP/1.1\r\nHost: a.example\r\n\r\n",
        )));
        cases.push(rejected(with(
            "G",
            "ET /x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        )));
    }
    run(&cases);
}

#[test]
fn malformed_header_lines_are_rejected() {
    run(&[
        rejected(get("no colon\r\n")),
        rejected(get("nocolon\r\n")),
        rejected(get(": no name\r\n")),
        rejected(get(":\r\n")),
        rejected(get("two words: y\r\n")),
        rejected(get("X(comment): y\r\n")),
        rejected(get("X/Y: y\r\n")),
        rejected(get("X\"Y: y\r\n")),
        rejected(get("X{Y: y\r\n")),
        rejected(get("X,Y: y\r\n")),
        rejected(get("X@Y: y\r\n")),
        rejected(get("GET /smuggled HTTP/1.1\r\n")),
        rejected(b"GET /x HTTP/1.1\r\nHost: a.example\r\nX-\xc3\xa4: y\r\n\r\n"),
        // RFC 9112, section 2.2: such lines are rejected or dropped.
        either(
            "GET /x HTTP/1.1\r\n Host: b.example\r\nHost: a.example\r\n\r\n",
            "GET /x",
            "",
        )
        .with_check(|request| request.values("host") != ["b.example"]),
        either(
            "GET /x HTTP/1.1\r\n\tX: y\r\nHost: a.example\r\n\r\n",
            "GET /x",
            "",
        ),
        forwarded(get("X:\r\n"), "GET /x", ""),
        forwarded(get("X:y\r\nX: z\r\n"), "GET /x", "")
            .with_check(|request| request.values("x") == ["y", "z"]),
        forwarded(get("!#$%&'*+-.^_`|~: y\r\n"), "GET /x", ""),
        either(
            b"GET /x HTTP/1.1\r\nHost: a.example\r\nX: \xff\xe4\r\n\r\n",
            "GET /x",
            "",
        )
        .with_check(|request| request.values("x") == ["\u{ff}\u{e4}"]),
    ]);
}

#[test]
fn folded_lines_are_rejected_or_unfolded() {
    run(&[
        either(get("X: y\r\n z\r\n"), "GET /x", "").with_check(|request| {
            let value = request.values("x").concat();
            value.split_whitespace().eq(["y", "z"])
        }),
        either(get("X: y\r\n\tContent-Length: 5\r\n"), "GET /x", "")
            .with_check(|request| request.values("content-length").is_empty()),
        either(get("X: y\r\n \r\n"), "GET /x", ""),
        either(get("X:\r\n \r\n y\r\n"), "GET /x", ""),
        rejected("GET /x HTTP/1.1\r\nHost: a.example\r\n b.example\r\n\r\n"),
    ]);
}

#[test]
fn a_head_that_is_too_long_gets_a_431() {
    let value = "v".repeat(70_000);
    let many: String = (0..5_000).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let many_short: String = (0..2_000).map(|n| format!("X{n}: {n}\r\n")).collect();
    run(&[
        rejected(get(&format!("X: {value}\r\n"))).with_statuses(&[431]),
        rejected(get(&format!("{value}: y\r\n"))).with_statuses(&[431]),
        rejected(get(&many)).with_statuses(&[431]),
        rejected(format!("GET /{value} HTTP/1.1\r\nHost: a.example\r\n\r\n"))
            .with_statuses(&[414, 431]),
        either(get(&many_short), "GET /x", "").with_statuses(&[431]),
        forwarded(get(&format!("X: {}\r\n", &value[..60_000])), "GET /x", ""),
    ]);
}

#[test]
fn connection_cannot_remove_framing_or_forwarding_headers() {
    run(&[
        either(
            post("Connection: Content-Length\r\nContent-Length: 5\r\n", "hello"),
            "POST /x",
            "hello",
        ),
        either(
            post(
                "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
                "5\r\nhello\r\n0\r\n\r\n",
            ),
            "POST /x",
            "hello",
        ),
        either(get("Connection: Host\r\n"), "GET /x", "")
            .with_check(|request| request.values("host").len() == 1),
        either(get("Connection: X-Forwarded-For, X-Forwarded-Host\r\n"), "GET /x", "")
            .with_check(|request| request.values("x-forwarded-for").concat() == "127.0.0.1"),
        forwarded(
            get("Connection: X-Secret, close\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Connection: close\r\nProxy-Authorization: x\r\n"),
            "GET /x",
            "",
        )
        .with_check(|request| {
            ["x-secret", "keep-alive", "proxy-connection", "proxy-authorization"]
                .iter()
                .all(|name| request.values(name).is_empty())
        }),
    ]);
}
