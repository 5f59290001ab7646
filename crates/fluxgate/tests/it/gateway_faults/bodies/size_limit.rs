//! `limits.body_bytes`.

use fluxgate_testkit::{RawClient, wait_until};

use super::super::{are_closed, assert_serves, client, gateway, ok_upstream};

const LIMIT: &str = "  limits: { body_bytes: 1000 }\n";

/// Sends a first request over the connection if it is to be reused.
fn prepare(client: &mut RawClient, is_reused: bool) {
    if is_reused {
        assert_eq!(client.get("/before").unwrap().status, 200);
    }
}

#[test]
fn a_length_over_the_limit_is_rejected_at_once() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], LIMIT);
    for is_reused in [false, true] {
        for length in ["1001", "10737418240", "9223372036854775807"] {
            let mut client = client(&service);
            prepare(&mut client, is_reused);
            client.send(format!(
                "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nhello"
            ));
            let response = client.read_answer().unwrap();
            assert_eq!(response.status, 413);
            assert_eq!(
                response.values("content-type"),
                ["application/problem+json"]
            );
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
fn chunks_over_the_limit_are_rejected_as_they_arrive() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], LIMIT);
    let chunk = format!("64\r\n{}\r\n", "x".repeat(100));
    for (is_reused, body) in [
        (false, chunk.repeat(11) + "0\r\n\r\n"),
        (true, chunk.repeat(11) + "0\r\n\r\n"),
        (false, chunk.repeat(20)),
        (false, format!("3e9\r\n{}", "x".repeat(1001))),
        (true, format!("fffffff\r\n{}", "x".repeat(5000))),
    ] {
        let mut client = client(&service);
        prepare(&mut client, is_reused);
        client.send(format!(
            "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        ));
        let response = client.read_answer().unwrap();
        assert_eq!(response.status, 413);
        // The connection stays open only if the whole body has arrived.
        if response.is_last() || !body.ends_with("0\r\n\r\n") {
            assert_eq!(client.read_to_end().unwrap(), b"");
        } else {
            assert_eq!(client.get("/after").unwrap().status, 200);
        }
    }
    wait_until("incomplete requests are aborted", || {
        are_closed(&upstream, "POST /x", 0)
    });
    assert!(upstream.requests().iter().all(|it| it.target != "/x"));
    assert_serves(&service);
}

#[test]
fn a_body_at_the_limit_is_forwarded() {
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

#[test]
fn a_body_over_the_limit_gets_no_100_continue() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], LIMIT);
    let mut client = client(&service);
    client.send(
        "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n",
    );
    assert_eq!(client.read_answer().unwrap().status, 413);
}

#[test]
fn a_body_after_100_continue_is_forwarded() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], LIMIT);
    let mut client = client(&service);
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.read_answer().unwrap().status, 100);
    client.send("hello");
    assert_eq!(client.read_answer().unwrap().status, 200);
    assert_eq!(upstream.requests()[0].body, b"hello");
}
