//! Malformed chunks.

use super::{either, forwarded, post, rejected, run};

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

#[test]
fn invalid_chunk_sizes_are_rejected() {
    let sizes = [
        "0x5",
        "-5",
        "+5",
        "-1",
        "5.0",
        "5,",
        "five",
        "",
        " ",
        "\t5",
        "5\x0b",
        "5\0",
        "5g",
        "g5",
        "5 5",
        "5_0",
        // More than 64 bits, which some parsers truncate.
        "10000000000000005",
        "fffffffffffffffff",
        "100000000000000000000000000000005",
    ];
    let mut cases: Vec<_> = sizes
        .iter()
        .map(|size| rejected(chunked(&format!("{size}\r\nhello\r\n0\r\n\r\n"))))
        .collect();
    for size in [
        "5 ",
        "5\t",
        " 5",
        "05",
        "00000000000000005",
        "5;ext",
        "5;ext=1",
        "5;a=\"b\"",
        "5 ; a=b",
    ] {
        let body = format!("{size}\r\nhello\r\n0\r\n\r\n");
        cases.push(either(chunked(&body), "POST /x", "hello"));
    }
    cases.push(forwarded(
        chunked("A\r\n0123456789\r\na\r\n0123456789\r\n000\r\n\r\n"),
        "POST /x",
        "01234567890123456789",
    ));
    run(&cases);
}

#[test]
fn chunks_without_their_line_ends_are_rejected() {
    run(&[
        rejected(chunked("5\r\nhello0\r\n\r\n")),
        rejected(chunked("5\r\nhelloXX0\r\n\r\n")),
        rejected(chunked("5\r\nhello world\r\n0\r\n\r\n")),
        rejected(chunked("4\r\nhello\r\n0\r\n\r\n")),
        rejected(chunked("5\rhello\r\n0\r\n\r\n")),
        rejected(chunked("5\r\nhello\r0\r\n\r\n")),
        rejected(chunked("5\r\rhello\r\n0\r\n\r\n")),
        rejected(chunked("5;\rx\r\nhello\r\n0\r\n\r\n")),
        rejected(chunked("0\r\n\rX")),
        either(chunked("5\nhello\r\n0\r\n\r\n"), "POST /x", "hello"),
        either(chunked("5\r\nhello\n0\r\n\r\n"), "POST /x", "hello"),
        either(chunked("5\r\nhello\r\n0\n\r\n"), "POST /x", "hello"),
        either(chunked("5;x\nhello\r\n0\r\n\r\n"), "POST /x", "hello"),
    ]);
}

/// A careless parser may read part of an extension as a chunk.
#[test]
fn extensions_never_reach_the_upstream() {
    run(&[
        either(chunked("2;\nxx\r\nhi\r\n0\r\n\r\n"), "POST /x", "hi"),
        either(chunked("2;0\r\nhi\r\n0;x=y\r\n\r\n"), "POST /x", "hi"),
        either(
            chunked(&format!("2;{}\r\nhi\r\n0\r\n\r\n", "x".repeat(1000))),
            "POST /x",
            "hi",
        ),
        rejected(chunked(&format!(
            "2;{}\r\nhi\r\n0\r\n\r\n",
            "x".repeat(1_000_000)
        )))
        .with_statuses(&[400, 413, 431]),
    ]);
}

#[test]
fn trailers_that_affect_framing_or_routing_never_reach_the_upstream() {
    let trailers = |lines: &str| {
        either(
            chunked(&format!("5\r\nhello\r\n0\r\n{lines}\r\n")),
            "POST /x",
            "hello",
        )
        .with_check(|request| {
            let names = request.trailers.iter().map(|(name, _)| name.as_str());
            let forbidden = [
                "content-length",
                "transfer-encoding",
                "host",
                "trailer",
                "connection",
                "x-forwarded-for",
                "x-user-id",
                "x-api-key",
                "authorization",
            ];
            names
                .collect::<Vec<_>>()
                .iter()
                .all(|name| !forbidden.contains(name))
                && request.values("x-user-id").is_empty()
        })
    };
    run(&[
        trailers("X-Sum: 1\r\n"),
        trailers("Content-Length: 5\r\n"),
        trailers("Transfer-Encoding: chunked\r\n"),
        trailers("Transfer-Encoding: identity\r\nContent-Length: 50\r\n"),
        trailers("Host: evil.example\r\n"),
        trailers("Trailer: Host\r\nConnection: close\r\n"),
        trailers(
            "X-Forwarded-For: 1.2.3.4\r\nX-User-Id: root\r\nX-API-Key: k\r\nAuthorization: x\r\n",
        ),
        rejected(chunked("5\r\nhello\r\n0\r\nno colon\r\n\r\n")),
        rejected(chunked("5\r\nhello\r\n0\r\nX : y\r\n\r\n")),
        rejected(chunked("5\r\nhello\r\n0\r\n: y\r\n\r\n")),
        rejected(chunked("5\r\nhello\r\n0\r\nX: \0\r\n\r\n")),
        rejected(chunked(&format!(
            "5\r\nhello\r\n0\r\nX: {}\r\n\r\n",
            "x".repeat(200_000)
        )))
        .with_statuses(&[400, 431]),
    ]);
}
