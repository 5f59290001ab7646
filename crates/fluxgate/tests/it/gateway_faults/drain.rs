//! SIGTERM: what is in flight is finished, nothing is lost, and it ends in time.

mod http1;
mod http2;
mod long;

use std::time::Duration;

use fluxgate_testkit::{timed, wait_for};

use crate::service::Service;

/// How long it may take to end.
const GRACE: Duration = Duration::from_secs(25);

/// Waits for the end and tells how long it took.
#[track_caller]
fn end_of(service: &Service) -> Duration {
    let look = || service.program.ended();
    let (ended, took) = timed(|| {
        // Longer than anything else is waited for.
        let first = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("the end of the service", look)
        }));
        first.unwrap_or_else(|_| wait_for("the end of the service, at last", look))
    });
    assert_eq!(ended.code(), Some(0));
    took
}
