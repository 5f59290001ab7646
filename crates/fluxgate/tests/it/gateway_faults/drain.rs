//! SIGTERM: requests in flight are completed, none is lost, and the service exits in time.

mod long_lived;
mod under_load;

use std::time::Duration;

use fluxgate_testkit::{timed, wait_for};

use crate::service::Service;

/// The time within which the service exits.
const GRACE: Duration = Duration::from_secs(25);

/// How much longer a busy machine may take. Together, this is when Kubernetes kills a pod.
const SLACK: Duration = Duration::from_secs(5);

/// Waits until the service exits and returns how long it took.
#[track_caller]
fn wait_for_exit(service: &Service) -> Duration {
    let look = || service.program.ended();
    let (ended, took) = timed(|| {
        // The grace period and the load of the machine may exceed one wait.
        let first = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("the service exits", look)
        }));
        first.unwrap_or_else(|_| wait_for("the service exits, second wait", look))
    });
    assert_eq!(ended.code(), Some(0));
    took
}
