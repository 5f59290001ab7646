//! Pipelined requests, and requests inside of bodies.

use fluxgate_testkit::{RawClient, WireRequest};

use super::{either, forwarded, post, run};
use crate::gateway_faults::{client, gateway, ok_upstream};

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a.example\r\n\r\n";

#[test]
fn a_request_inside_a_body_stays_part_of_the_body() {
    assert_eq!(HIDDEN.len(), 41);
    let chunk = format!("29\r\n{HIDDEN}\r\n0\r\n\r\n");
    let get = |headers: &str, body: &str| {
        format!("GET /x HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n{body}")
    };
    run(&[
        forwarded(post("Content-Length: 41\r\n", HIDDEN), "POST /x", HIDDEN),
        forwarded(
            post("Transfer-Encoding: chunked\r\n", &chunk),
            "POST /x",
            HIDDEN,
        ),
        either(get("Content-Length: 41\r\n", HIDDEN), "GET /x", HIDDEN),
        either(
            get("Transfer-Encoding: chunked\r\n", &chunk),
            "GET /x",
            HIDDEN,
        ),
        either(
            get("Content-Length: 41\r\n", HIDDEN).replacen("GET", "DELETE", 1),
            "DELETE /x",
            HIDDEN,
        ),
        either(
            get("Content-Length: 41\r\n", HIDDEN).replacen("GET", "OPTIONS", 1),
            "OPTIONS /x",
            HIDDEN,
        ),
        // Sends its body without waiting for 100 Continue.
        forwarded(
            post("Expect: 100-continue\r\nContent-Length: 41\r\n", HIDDEN),
            "POST /x",
            HIDDEN,
        ),
    ]);
}

/// Sends `bytes` at once and returns the statuses until the connection ends, at most
/// `count` of them.
fn statuses(client: &mut RawClient, bytes: &str, count: usize) -> Vec<u16> {
    client.send(bytes);
    let mut statuses = Vec::new();
    while statuses.len() < count {
        match client.read_answer() {
            Ok(response) => statuses.push(response.status),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
                break;
            }
        }
    }
    statuses
}

fn lines(requests: &[WireRequest]) -> Vec<String> {
    requests.iter().map(WireRequest::line).collect()
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let upstream = fluxgate_testkit::RawUpstream::start(|connection| {
        while let Some(request) = connection.read_request() {
            let body = format!(
                "{} {}",
                request.line(),
                String::from_utf8_lossy(&request.body)
            );
            let length = body.len();
            connection.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
            ));
        }
    });
    let service = gateway(&[upstream.address()], "");
    let mut client = client(&service);
    let mut sent = String::new();
    let mut expected = Vec::new();
    for n in 0..60 {
        let body = "b".repeat(n);
        let host = "HTTP/1.1\r\nHost: a.example\r\n";
        sent += &match n % 3 {
            0 => format!("GET /{n} {host}\r\n"),
            1 => format!("POST /{n} {host}Content-Length: {n}\r\n\r\n{body}"),
            _ => format!(
                "PUT /{n} {host}Transfer-Encoding: chunked\r\n\r\n{n:x}\r\n{body}\r\n0\r\n\r\n"
            ),
        };
        expected.push(match n % 3 {
            0 => format!("GET /{n} "),
            1 => format!("POST /{n} {body}"),
            _ => format!("PUT /{n} {body}"),
        });
    }
    client.send(sent);
    for expected in expected {
        assert_eq!(client.read_answer().unwrap().text(), expected);
    }
    assert_eq!(upstream.requests().len(), 60);
}

#[test]
fn bytes_after_a_rejected_request_are_not_read() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    for invalid in [
        post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
        post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding: chunked\r\n", "x\r\n"),
        "GET /x HTTP/1.1\r\nHost: a.example\r\nno header\r\n\r\n".to_owned(),
    ] {
        let mut client = client(&service);
        assert_eq!(
            statuses(&mut client, &format!("{invalid}{HIDDEN}"), 2),
            [400],
            "{invalid:?}"
        );
    }
    assert_eq!(lines(&upstream.requests()), [""; 0]);
}

#[test]
fn bytes_after_the_last_request_are_not_read() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    for last in [
        "GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
        "GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: x, Close\r\n\r\n",
        "GET /last HTTP/1.0\r\nHost: a.example\r\n\r\n",
    ] {
        let before = upstream.requests().len();
        let mut client = client(&service);
        assert_eq!(
            statuses(&mut client, &format!("{last}{HIDDEN}"), 2),
            [200],
            "{last:?}"
        );
        assert_eq!(upstream.requests().len(), before + 1, "{last:?}");
    }
}

#[test]
fn bytes_after_a_body_are_the_next_request() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    let mut client = client(&service);
    let bytes = post("Content-Length: 5\r\n", "hello") + "garbage\r\n\r\n";
    assert_eq!(statuses(&mut client, &bytes, 3), [200, 400]);
    let requests = upstream.requests();
    assert_eq!(lines(&requests), ["POST /x"]);
    assert_eq!(requests[0].body, b"hello");
}
