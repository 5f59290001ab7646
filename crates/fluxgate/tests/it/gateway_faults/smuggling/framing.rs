//! Ambiguous and malformed body lengths.

use super::{Case, either, forwarded, post, rejected, run};

const CHUNKED: &str = "5\r\nhello\r\n0\r\n\r\n";

#[test]
fn an_unambiguous_body_is_forwarded() {
    run(&[
        forwarded(post("Content-Length: 5\r\n", "hello"), "POST /x", "hello"),
        forwarded(
            post("Transfer-Encoding: chunked\r\n", CHUNKED),
            "POST /x",
            "hello",
        ),
        forwarded(post("Content-Length: 0\r\n", ""), "POST /x", ""),
        forwarded(post("", ""), "POST /x", ""),
        // Optional whitespace.
        forwarded(
            post("Transfer-Encoding:\tchunked\t\r\n", CHUNKED),
            "POST /x",
            "hello",
        ),
        forwarded(
            post("Content-Length:   5  \r\n", "hello"),
            "POST /x",
            "hello",
        ),
        forwarded(
            post("TRANSFER-ENCODING: CHUNKED\r\n", CHUNKED),
            "POST /x",
            "hello",
        ),
    ]);
}

#[test]
fn a_length_and_chunks_are_never_both_forwarded() {
    let both = |headers: &str| either(post(headers, CHUNKED), "POST /x", "hello");
    run(&[
        both("Content-Length: 15\r\nTransfer-Encoding: chunked\r\n"),
        both("Transfer-Encoding: chunked\r\nContent-Length: 15\r\n"),
        both("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        both("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"),
        both("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"),
        both("Transfer-Encoding: chunked\r\nX: y\r\nContent-Length: 0\r\n"),
        both("Connection: Content-Length\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        both(
            "Connection: Transfer-Encoding\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        ),
    ]);
}

#[test]
fn different_and_invalid_lengths_are_rejected() {
    let invalid = |lines: &str| rejected(post(lines, "hello"));
    let lines = [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 0\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nX: y\r\ncontent-length: 0\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5.0\r\n",
        "Content-Length: 5e0\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 5;\r\n",
        "Content-Length: \"5\"\r\n",
        "Content-Length: five\r\n",
        "Content-Length:\r\n",
        "Content-Length: \r\n",
        "Content-Length: ,5\r\n",
        "Content-Length: 5,\r\n",
        "Content-Length: \x0b5\r\n",
        "Content-Length: 18446744073709551621\r\n",
        "Content-Length: 99999999999999999999999999999999999999999\r\n",
        "Content-Length : 5\r\n",
        "Content-Length\t: 5\r\n",
        " Content-Length: 5\r\n",
    ];
    let mut cases: Vec<_> = lines.iter().map(|lines| invalid(lines)).collect();
    // RFC 9110, section 8.6: repeated equal lengths may be read as one.
    for lines in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5, 5\r\n",
    ] {
        cases.push(either(post(lines, "hello"), "POST /x", "hello"));
    }
    for lines in [
        "Content-Length: 005\r\n",
        "Content-Length: 00000000000000000000005\r\n",
    ] {
        cases.push(either(post(lines, "hello"), "POST /x", "hello"));
    }
    run(&cases);
}

#[test]
fn codings_other_than_chunked_are_rejected() {
    let lines = [
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked,\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: 'chunked'\r\n",
        "Transfer-Encoding: chunked x\r\n",
        "Transfer-Encoding: x chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding: chunked\x0b\r\n",
        "Transfer-Encoding: \x0cchunked\r\n",
        "Transfer-Encoding: chunked\x00\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        "Transfer-Encoding\x0b: chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: identity, chunked, x\r\n",
    ];
    let mut cases: Vec<_> = lines
        .iter()
        .map(|lines| rejected(post(lines, CHUNKED)).with_statuses(&[400, 501]))
        .collect();
    // `chunked` is the last coding, but the gateway cannot decode the first.
    for lines in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
    ] {
        cases.push(rejected(post(lines, CHUNKED)).with_statuses(&[400, 501]));
    }
    // An empty list element is ignored.
    cases.push(either(
        post("Transfer-Encoding: , chunked\r\n", CHUNKED),
        "POST /x",
        "hello",
    ));
    run(&cases);
}

/// RFC 9112, section 6.1: chunked framing is invalid in HTTP/1.0.
#[test]
fn chunks_in_http_1_0_are_rejected_or_end_the_connection() {
    let http10 = |headers: &str| -> Case {
        let text = format!("POST /x HTTP/1.0\r\nHost: a.example\r\n{headers}\r\n{CHUNKED}");
        either(text, "POST /x", "hello").with_statuses(&[400, 411])
    };
    run(&[
        http10("Transfer-Encoding: chunked\r\n"),
        http10("Transfer-Encoding: chunked\r\nContent-Length: 15\r\n"),
        http10("Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n"),
        forwarded(
            "POST /x HTTP/1.0\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello",
            "POST /x",
            "hello",
        ),
    ]);
}

#[test]
fn folded_framing_is_rejected_or_unfolded() {
    let folded = |headers: &str| either(post(headers, CHUNKED), "POST /x", "hello");
    run(&[
        folded("Transfer-Encoding:\r\n chunked\r\n"),
        folded("Transfer-Encoding:\r\n\tchunked\r\n"),
        rejected(post(
            "Transfer-Encoding: chunked\r\n , identity\r\n",
            CHUNKED,
        )),
        rejected(post("X: y\r\n Transfer-Encoding: chunked\r\n", CHUNKED)),
        either(
            post("Content-Length:\r\n 5\r\n", "hello"),
            "POST /x",
            "hello",
        ),
        rejected(post("Content-Length: 1\r\n 5\r\n", "hello")),
    ]);
}
