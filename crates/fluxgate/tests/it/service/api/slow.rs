//! Slow and idle clients.

use std::thread;
use std::time::Duration;

use fluxgate_testkit::{RawClient, WAIT_TIMEOUT, timed};

use super::RULES;
use crate::service::Service;

/// Requests, and the status of the immediate response if there is one.
const IDLE: [(&str, Option<u16>); 3] = [
    ("", None),
    (
        "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
        Some(400),
    ),
    ("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n", Some(200)),
];

fn connect(service: &Service, bytes: &str) -> RawClient {
    let mut client = RawClient::connect(service.address("api"));
    client.set_read_timeout(WAIT_TIMEOUT);
    client.send(bytes);
    client
}

/// The two take their time together.
#[test]
fn an_idle_connection_is_closed_after_half_a_minute_and_a_missing_body_is_a_408_after_ten_seconds()
{
    let service = Service::start(&[], RULES);
    thread::scope(|scope| {
        for (bytes, status) in IDLE {
            let service = &service;
            scope.spawn(move || {
                // From before the connection, so that a pause of this thread does not matter.
                let (rest, waited) = timed(|| {
                    let mut client = connect(service, bytes);
                    if let Some(status) = status {
                        assert_eq!(client.read_answer().unwrap().status, status, "{bytes}");
                    }
                    client.read_to_end().unwrap()
                });
                assert!(rest.is_empty(), "{bytes}: {rest:?}");
                assert!(waited > Duration::from_secs(25), "{bytes}: {waited:?}");
            });
        }
        for path in ["/v1/check", "/v1/check/batch", "/v1/consume", "/v1/reset"] {
            let service = &service;
            scope.spawn(move || {
                let head = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 9";
                let bytes = format!("POST {path} HTTP/1.1\r\n{head}\r\n\r\n{{");
                let (answer, waited) = timed(|| connect(service, &bytes).read_answer().unwrap());
                assert_eq!(answer.status, 408, "{path}");
                assert!(waited > Duration::from_secs(8), "{path}: {waited:?}");
            });
        }
    });
}
