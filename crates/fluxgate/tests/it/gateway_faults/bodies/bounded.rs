//! `limits.body_bytes`.

use fluxgate_testkit::{RawClient, wait_until};

use super::super::{are_let_go, assert_serves, client, gateway, ok_upstream};

const LIMIT: &str = "  limits: { body_bytes: 1000 }\n";

fn begin(client: &mut RawClient, before: bool) {
    if before {
        assert_eq!(client.get("/before").unwrap().status, 200);
    }
}

#[test]
fn a_length_beyond_the_bound_is_refused_at_once() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], LIMIT);
    for before in [false, true] {
        for length in ["1001", "10737418240", "9223372036854775807"] {
            let mut client = client(&service);
            begin(&mut client, before);
            client.send(format!(
                "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nhello"
            ));
            let answer = client.read_answer().unwrap();
            assert_eq!(answer.status, 413);
            assert_eq!(answer.values("content-type"), ["application/problem+json"]);
            assert_eq!(client.read_to_end().unwrap(), b"");
        }
    }
    assert!(upstream.requests().iter().all(|it| it.target != "/x"));
    assert!(
        upstream
            .received()
            .iter()
            .all(|it| !it.bytes.starts_with(b"POST"))
    );
}

#[test]
fn chunks_beyond_the_bound_are_refused_in_the_middle() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], LIMIT);
    let chunk = format!("64\r\n{}\r\n", "x".repeat(100));
    for (before, body) in [
        (false, chunk.repeat(11) + "0\r\n\r\n"),
        (true, chunk.repeat(11) + "0\r\n\r\n"),
        (false, chunk.repeat(20)),
        (false, format!("3e9\r\n{}", "x".repeat(1001))),
        (true, format!("fffffff\r\n{}", "x".repeat(5000))),
    ] {
        let mut client = client(&service);
        begin(&mut client, before);
        client.send(format!(
            "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        ));
        let answer = client.read_answer().unwrap();
        assert_eq!(answer.status, 413);
        // It stays only if all of the body has come.
        match answer.is_last() || !body.ends_with("0\r\n\r\n") {
            true => assert_eq!(client.read_to_end().unwrap(), b""),
            false => assert_eq!(client.get("/after").unwrap().status, 200),
        }
    }
    wait_until("what was begun is cut off", || {
        are_let_go(&upstream, "POST /x", 0)
    });
    assert!(upstream.requests().iter().all(|it| it.target != "/x"));
    assert_serves(&service);
}

#[test]
fn a_body_at_the_bound_passes() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], LIMIT);
    let mut client = client(&service);
    let body = "x".repeat(1000);
    for rest in [
        format!("Content-Length: 1000\r\n\r\n{body}"),
        format!("Transfer-Encoding: chunked\r\n\r\n3e8\r\n{body}\r\n0\r\n\r\n"),
        format!(
            "Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
            "1\r\nx\r\n".repeat(1000)
        ),
    ] {
        client.send(format!("POST /x HTTP/1.1\r\nHost: a\r\n{rest}"));
        assert_eq!(client.read_answer().unwrap().status, 200);
    }
    let requests = upstream.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|it| it.body == body.as_bytes()));
}

/// One that waits to be asked for its body is refused before it sends it.
#[test]
fn a_body_that_is_too_large_is_not_asked_for() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], LIMIT);
    let mut client = client(&service);
    client.send(
        "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n",
    );
    assert_eq!(client.read_answer().unwrap().status, 413);
}

#[test]
fn a_body_that_is_asked_for_is_sent() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], LIMIT);
    let mut client = client(&service);
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.read_answer().unwrap().status, 100);
    client.send("hello");
    assert_eq!(client.read_answer().unwrap().status, 200);
    assert_eq!(upstream.requests()[0].body, b"hello");
}
