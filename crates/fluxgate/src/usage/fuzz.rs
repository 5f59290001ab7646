//! What the fuzz target of the record calls.

use super::shared_top::{OwnTop, SharedTop, TopWindow, sum};
use crate::telemetry::{TopBy, TopList};

/// Reads what another instance shares, as it is written or still as JSON, and adds it to an empty list,
/// twice.
pub(crate) fn shared_top(bytes: &[u8]) {
    let shared = SharedTop::read(bytes).or_else(|| serde_json::from_slice(bytes).ok());
    let Some(shared) = shared else { return };
    let again = SharedTop::read(&shared.write()).expect("it was written");
    let others = [shared, again];
    for (by, window) in [
        (TopBy::Denied, TopWindow::Minute),
        (TopBy::Requests, TopWindow::TenSeconds),
    ] {
        let own = OwnTop::new(TopList::default(), 1, |_, _| None);
        let fleet = sum(own, &others, by, window);
        assert!(fleet.instances == 1 || fleet.instances == 3);
    }
}
