//! Requests that other rules decide differently, over time.

use std::ops::AddAssign;

use fluxgate_core::Timestamp;

use super::timeline::Timeline;
use crate::changes::Change;

/// Requests that are decided differently, over time.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangedTraffic(pub(super) Timeline<ChangedColumn>);

/// How many requests of one column are decided differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChangedColumn {
    pub(super) denied: u64,
    pub(super) admitted: u64,
}

impl ChangedTraffic {
    pub(super) fn record(&mut self, at: Timestamp, change: Change) {
        let column = self.0.at(at);
        match change {
            Change::NewlyDenied => column.denied += 1,
            Change::NewlyAdmitted => column.admitted += 1,
        }
    }
}

impl AddAssign for ChangedColumn {
    fn add_assign(&mut self, other: Self) {
        self.denied += other.denied;
        self.admitted += other.admitted;
    }
}
