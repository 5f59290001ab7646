//! Clients that take their time: each is cut by its time limit while others are
//! served.

mod bodies;
mod crowds;
mod heads;

use std::time::Duration;

use fluxgate_testkit::{RawClient, timed};

const SHORT: &str = "  timeouts: { headers: 400ms, idle: 600ms, request: 1s, connect: 400ms }\n";
/// The machine may be busy; without a limit it would take for ever.
const LONG: Duration = Duration::from_secs(8);

/// Waits for the end, and tells what came before it.
#[track_caller]
fn end_of(client: &mut RawClient) -> (String, Duration) {
    let (bytes, took) = timed(|| client.read_to_end());
    let bytes = bytes.expect("it is cut off");
    (String::from_utf8(bytes).unwrap(), took)
}

/// It ended with nothing, or with a status that says why.
#[track_caller]
fn assert_cut(client: &mut RawClient, statuses: &[&str]) {
    let (bytes, took) = end_of(client);
    assert!(took < LONG, "{took:?}");
    let is_told = statuses
        .iter()
        .any(|it| bytes.starts_with(&format!("HTTP/1.1 {it} ")));
    assert!(bytes.is_empty() || is_told, "{bytes:?}");
}
