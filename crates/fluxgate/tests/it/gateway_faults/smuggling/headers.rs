//! Lines that are not quite headers.

use super::{either, forwarded, get, post, refused, run};

/// `GET /x` whose header lines end as given; the first line ends well.
fn ended(by: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: a.example{by}X: y{by}{by}")
}

#[test]
fn bare_line_ends_are_refused_or_made_good() {
    run(&[
        either(ended("\n"), "GET /x", ""),
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
        refused(get("X: y\rTransfer-Encoding: chunked\r\n")),
        refused(get("X: y\r\rZ: z\r\n")),
        refused(get("X: y\r Z: z\r\n")),
        refused("GET /x HTTP/1.1\rHost: a.example\r\n\r\n"),
        refused("GET /x HTTP/1.1\r\nHost: a.example\r\n\rX: y\r\n\r\n"),
        refused(get("X\r: y\r\n")),
        refused(get("X\n: y\r\n")),
    ]);
}

#[test]
fn control_characters_are_refused_or_made_blank() {
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
        cases.push(refused(with(&format!("{head}X-A"), "B: y\r\n\r\n")));
        cases.push(refused(with(&format!("{head}X-A"), ": y\r\n\r\n")));
        cases.push(refused(with(head, "X-A: y\r\n\r\n")));
        // RFC 9110, 5.5: those three are refused or made blank, others may be kept;
        // no careful server takes them.
        cases.push(either(
            with(&format!("{head}X-A: y"), "z\r\n\r\n"),
            "GET /x",
            "",
        ));
        cases.push(refused(with(
            "GET /x",
            "y HTTP/1.1\r\nHost: a.example\r\n\r\n",
        )));
        cases.push(refused(with(
            "G",
            "ET /x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        )));
    }
    run(&cases);
}

#[test]
fn lines_that_are_no_headers_are_refused() {
    run(&[
        refused(get("no colon\r\n")),
        refused(get("nocolon\r\n")),
        refused(get(": no name\r\n")),
        refused(get(":\r\n")),
        refused(get("two words: y\r\n")),
        refused(get("X(comment): y\r\n")),
        refused(get("X/Y: y\r\n")),
        refused(get("X\"Y: y\r\n")),
        refused(get("X{Y: y\r\n")),
        refused(get("X,Y: y\r\n")),
        refused(get("X@Y: y\r\n")),
        refused(get("GET /smuggled HTTP/1.1\r\n")),
        refused(b"GET /x HTTP/1.1\r\nHost: a.example\r\nX-\xc3\xa4: y\r\n\r\n"),
        // RFC 9112, 2.2: such lines are refused or thrown away.
        either(
            "GET /x HTTP/1.1\r\n Host: b.example\r\nHost: a.example\r\n\r\n",
            "GET /x",
            "",
        )
        .when(|seen| seen.values("host") != ["b.example"]),
        either(
            "GET /x HTTP/1.1\r\n\tX: y\r\nHost: a.example\r\n\r\n",
            "GET /x",
            "",
        ),
        forwarded(get("X:\r\n"), "GET /x", ""),
        forwarded(get("X:y\r\nX: z\r\n"), "GET /x", "").when(|seen| seen.values("x") == ["y", "z"]),
        forwarded(get("!#$%&'*+-.^_`|~: y\r\n"), "GET /x", ""),
        either(
            b"GET /x HTTP/1.1\r\nHost: a.example\r\nX: \xff\xe4\r\n\r\n",
            "GET /x",
            "",
        )
        .when(|seen| seen.values("x") == ["\u{ff}\u{e4}"]),
    ]);
}

#[test]
fn folded_lines_are_refused_or_unfolded() {
    run(&[
        either(get("X: y\r\n z\r\n"), "GET /x", "").when(|seen| {
            let value = seen.values("x").concat();
            value.split_whitespace().eq(["y", "z"])
        }),
        either(get("X: y\r\n\tContent-Length: 5\r\n"), "GET /x", "")
            .when(|seen| seen.values("content-length").is_empty()),
        either(get("X: y\r\n \r\n"), "GET /x", ""),
        either(get("X:\r\n \r\n y\r\n"), "GET /x", ""),
        refused("GET /x HTTP/1.1\r\nHost: a.example\r\n b.example\r\n\r\n"),
    ]);
}

#[test]
fn a_head_that_is_too_long_is_told() {
    let value = "v".repeat(70_000);
    let many: String = (0..5_000).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let many_short: String = (0..2_000).map(|n| format!("X{n}: {n}\r\n")).collect();
    run(&[
        refused(get(&format!("X: {value}\r\n"))).or_status(&[431]),
        refused(get(&format!("{value}: y\r\n"))).or_status(&[431]),
        refused(get(&many)).or_status(&[431]),
        refused(format!("GET /{value} HTTP/1.1\r\nHost: a.example\r\n\r\n")).or_status(&[414, 431]),
        either(get(&many_short), "GET /x", "").or_status(&[431]),
        forwarded(get(&format!("X: {}\r\n", &value[..60_000])), "GET /x", ""),
    ]);
}

#[test]
fn a_connection_header_takes_nothing_away_that_frames_or_counts() {
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
            .when(|seen| seen.values("host").len() == 1),
        either(get("Connection: X-Forwarded-For, X-Forwarded-Host\r\n"), "GET /x", "")
            .when(|seen| seen.values("x-forwarded-for").concat() == "127.0.0.1"),
        forwarded(
            get("Connection: X-Secret, close\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Connection: close\r\nProxy-Authorization: x\r\n"),
            "GET /x",
            "",
        )
        .when(|seen| {
            ["x-secret", "keep-alive", "proxy-connection", "proxy-authorization"]
                .iter()
                .all(|name| seen.values(name).is_empty())
        }),
    ]);
}
