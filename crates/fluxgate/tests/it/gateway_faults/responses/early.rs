//! Responses that arrive before the request is complete.

use fluxgate_testkit::{RawUpstream, timed, wait_until};

use super::super::{OK, client, gateway};

const TOO_LARGE: &str = "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig";

#[test]
fn an_error_response_during_the_request_body_is_forwarded() {
    for closes in [true, false] {
        let upstream = RawUpstream::start(move |connection| {
            // All that was sent, because the end of a connection with unread bytes is a reset.
            connection.wait_for_end_with("12345");
            connection.send(TOO_LARGE);
            if !closes {
                connection.hold();
            }
        });
        let service = gateway(&[upstream.address()], "");
        let mut client = client(&service);
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n12345");
        let response = client.read_answer().unwrap();
        assert_eq!((response.status, response.text().as_str()), (413, "big"));
        // The rest of the body must not be read as requests.
        client.send("GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5));
        client.finish();
        let more = client.read_to_end().unwrap();
        assert!(
            more.is_empty(),
            "{closes} {:?}",
            more.escape_ascii().to_string()
        );
        assert_eq!(upstream.requests().len(), 0);
    }
}

#[test]
fn an_upstream_connection_with_an_incomplete_request_is_not_reused() {
    let upstream = RawUpstream::start(|connection| {
        if connection.index() == 0 {
            connection.wait_for_bytes(10);
            connection.send(TOO_LARGE);
            connection.hold();
        }
        while connection.read_request().is_some() {
            connection.send(OK);
        }
    });
    let service = gateway(&[upstream.address()], "");
    let mut first = client(&service);
    first.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n12345");
    assert_eq!(first.read_answer().unwrap().status, 413);
    drop(first);
    wait_until("the connection is closed", || {
        upstream.received()[0].is_over
    });
    assert_eq!(client(&service).get("/next").unwrap().text(), "ok");
    let first = String::from_utf8(upstream.received()[0].bytes.clone()).unwrap();
    assert!(!first.contains("/next"), "{first}");
}

#[test]
fn a_client_that_disconnects_aborts_its_request() {
    let upstream = RawUpstream::start(|connection| {
        if connection.index() == 0 {
            connection.hold();
        }
        while connection.read_request().is_some() {
            connection.send(OK);
        }
    });
    let service = gateway(&[upstream.address()], "");
    let mut client = client(&service);
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    wait_until("the body has arrived", || {
        let received = upstream.received();
        received
            .first()
            .is_some_and(|it| it.bytes.ends_with(b"o\r\n"))
    });
    drop(client);
    wait_until("it is aborted", || upstream.received()[0].is_over);
    assert_eq!(upstream.requests().len(), 0);
    super::super::assert_serves(&service);
}

#[test]
fn endless_interim_responses_are_aborted() {
    let upstream = RawUpstream::start(|connection| {
        connection.read_request();
        let (_, stream) = connection.stream();
        let hints = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100);
        while std::io::Write::write_all(stream, &hints).is_ok() {}
    });
    let service = gateway(&[upstream.address()], "  timeouts: { request: 1s }\n");
    let mut client = client(&service);
    let (response, took) = timed(|| {
        let mut response = client.get("/x");
        while response
            .as_ref()
            .is_ok_and(|response| response.status < 200)
        {
            response = client.read_answer();
        }
        response.unwrap()
    });
    assert!([502, 504].contains(&response.status), "{response:?}");
    assert!(took.as_secs() < 10, "{took:?}");
}
