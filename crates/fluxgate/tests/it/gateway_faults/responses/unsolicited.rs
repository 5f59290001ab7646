//! Responses without a request.

use std::time::Duration;

use fluxgate_testkit::{RawUpstream, wait_until};

use super::super::{OK, client, gateway};
use super::{run, valid};

const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

#[test]
fn bytes_after_a_response_are_discarded() {
    run(vec![
        valid(format!("{OK}{EVIL}"), 200, "ok"),
        valid(format!("{OK}\r\n"), 200, "ok"),
        valid(format!("{OK}garbage"), 200, "ok"),
        valid(format!("HTTP/1.1 204 No Content\r\n\r\n{EVIL}"), 204, ""),
        valid(
            format!("HTTP/1.1 204 No Content\r\nContent-Length: 50\r\n\r\n{EVIL}"),
            204,
            "",
        ),
        valid(
            format!("HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n{EVIL}"),
            304,
            "",
        ),
        valid(
            format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{EVIL}"
            ),
            200,
            "ok",
        ),
    ]);
}

#[test]
fn a_response_before_its_request_is_discarded() {
    let upstream = RawUpstream::start(|connection| {
        while connection.read_request().is_some() {
            connection.send(OK);
            connection.pause(Duration::from_millis(50));
            connection.send(EVIL);
        }
    });
    let service = gateway(&[upstream.address()], "");
    let mut client = client(&service);
    for _ in 0..3 {
        let response = client.get("/x").unwrap();
        assert_eq!((response.status, response.text().as_str()), (200, "ok"));
        // The gateway closes a connection that carries an unsolicited response.
        wait_until("the connection is closed", || {
            upstream.received().iter().all(|received| received.is_over)
        });
    }
}

#[test]
fn a_response_to_head_has_no_body() {
    let upstream = RawUpstream::start(|connection| {
        while let Some(request) = connection.read_request() {
            match request.method.as_str() {
                // Violates the protocol: sends a body.
                "HEAD" if request.target == "/wrong" => connection.send(EVIL),
                "HEAD" => connection.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"),
                _ => connection.send(OK),
            }
        }
    });
    let service = gateway(&[upstream.address()], "");
    for target in ["/", "/wrong"] {
        let mut client = client(&service);
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let response = client.read_answer_to("HEAD").unwrap();
        assert_eq!(
            (response.status, response.values("content-length")),
            (200, vec!["4"])
        );
        let next = client.get("/next").unwrap();
        assert_eq!((next.status, next.text().as_str()), (200, "ok"), "{target}");
    }
}
