//! Slow clients: each is disconnected by a timeout while others are served.

mod bodies;
mod heads;
mod many_clients;

use std::time::Duration;

use fluxgate_testkit::{RawClient, timed};

const SHORT_TIMEOUTS: &str =
    "  timeouts: { headers: 400ms, idle: 600ms, request: 1s, connect: 400ms }\n";
/// Far longer than any of the timeouts, because the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(8);

/// Reads until the connection closes; returns what was read and how long it took.
#[track_caller]
fn read_until_closed(client: &mut RawClient) -> (String, Duration) {
    let (bytes, took) = timed(|| client.read_to_end());
    let bytes = bytes.expect("the gateway closes the connection");
    (String::from_utf8(bytes).unwrap(), took)
}

/// Asserts that the connection closes in time, silently or after one of these statuses.
#[track_caller]
fn assert_closed(client: &mut RawClient, statuses: &[&str]) {
    let (bytes, took) = read_until_closed(client);
    assert!(took < DEADLINE, "{took:?}");
    let has_status = statuses
        .iter()
        .any(|it| bytes.starts_with(&format!("HTTP/1.1 {it} ")));
    assert!(bytes.is_empty() || has_status, "{bytes:?}");
}
