//! Answers that come before the request is finished.

use fluxgate_testkit::{RawUpstream, timed, wait_until};

use super::super::{OK, client, gateway};

const LATE: &str = "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig";

#[test]
fn a_refusal_in_the_middle_of_a_body_is_passed_on() {
    for closes in [true, false] {
        let upstream = RawUpstream::start(move |connection| {
            connection.wait_for_bytes(10);
            connection.send(LATE);
            if !closes {
                connection.hold();
            }
        });
        let service = gateway(&[upstream.address()], "");
        let mut client = client(&service);
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n12345");
        let answer = client.read_answer().unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (413, "big"));
        // The rest of the body is no request, whoever reads it.
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

/// An upstream connection on which a request was not sent to its end is not used
/// for another.
#[test]
fn a_connection_with_half_a_request_on_it_is_not_used_again() {
    let upstream = RawUpstream::start(|connection| {
        if connection.index() == 0 {
            connection.wait_for_bytes(10);
            connection.send(LATE);
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
fn a_client_that_goes_away_takes_its_request_along() {
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
    wait_until("the body has come", || {
        let received = upstream.received();
        received
            .first()
            .is_some_and(|it| it.bytes.ends_with(b"o\r\n"))
    });
    drop(client);
    wait_until("it is cut off", || upstream.received()[0].is_over);
    assert_eq!(upstream.requests().len(), 0);
    super::super::assert_serves(&service);
}

/// Interim answers without an end are no answer.
#[test]
fn interim_answers_without_an_end_are_cut() {
    let upstream = RawUpstream::start(|connection| {
        connection.read_request();
        let (_, stream) = connection.stream();
        let hints = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100);
        while std::io::Write::write_all(stream, &hints).is_ok() {}
    });
    let service = gateway(&[upstream.address()], "  timeouts: { request: 1s }\n");
    let mut client = client(&service);
    let (answer, took) = timed(|| {
        let mut answer = client.get("/x");
        while answer.as_ref().is_ok_and(|answer| answer.status < 200) {
            answer = client.read_answer();
        }
        answer.unwrap()
    });
    assert!([502, 504].contains(&answer.status), "{answer:?}");
    assert!(took.as_secs() < 10, "{took:?}");
}
