//! HTTP/2: the requirements of RFC 9113, attacks, and common clients.

mod clients;
mod downgrade;
mod floods;
mod protocol;
mod slow_clients;

use std::time::Duration;

use fluxgate_testkit::RawUpstream;

use super::{OK, output_of, script};
use crate::service::Service;

/// Starts an upstream that never responds to `/slow`, responds to `/big` with a million
/// bytes, and closes the connection within the response to `/truncated`.
fn upstream() -> RawUpstream {
    RawUpstream::start(|connection| {
        while let Some(request) = connection.read_request() {
            match request.target.as_str() {
                "/slow" => {
                    connection.hold();
                    return;
                }
                "/big" => {
                    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
                    connection.send(vec![b'x'; 1_000_000]);
                }
                "/truncated" => {
                    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
                    connection.pause(Duration::from_millis(50));
                    return;
                }
                _ if request.method == "HEAD" => {
                    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
                }
                _ => connection.send(OK),
            }
        }
    })
}

/// Runs the named checks of a script one by one and reports all failures.
#[track_caller]
fn check(service: &Service, script_name: &str, checks: &[&str]) {
    let address = service.address("gateway").to_string();
    let output = script(&format!("http2/{script_name}.py"))
        .args([&checks.join(","), &address])
        .output()
        .unwrap();
    let failures = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "\n{failures}{errors}");
    assert!(service.program.ended().is_none());
}
