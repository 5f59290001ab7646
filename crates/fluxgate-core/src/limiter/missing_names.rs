//! The names of missing rule sets that were reported.

use std::collections::HashSet;

use crate::sip::Sip13;

/// How many names are remembered. They may come from clients, so neither the memory nor the
/// log may grow with them.
pub(super) const MAX_NAMES: usize = 1_000;

/// Hashes of the names of missing rule sets. The names themselves may be long.
#[derive(Debug, Default)]
pub(super) struct MissingNames {
    /// Those that observers have reported.
    reported: HashSet<u64>,
    /// Those that the limiter has logged.
    logged: HashSet<u64>,
}

impl MissingNames {
    /// Returns how many names have been logged, if this one is to be logged now.
    pub(super) fn log(&mut self, name: &str) -> Option<usize> {
        let is_new = self.logged.len() < MAX_NAMES && self.logged.insert(hash(name));
        is_new.then_some(self.logged.len())
    }

    /// Calls `report` unless the name has been reported. It returns whether it is now.
    pub(super) fn report(&mut self, name: &str, report: impl FnOnce() -> bool) {
        let hash = hash(name);
        if !self.reported.contains(&hash) && report() {
            // Reporting a name twice is better than growing without bound.
            if self.reported.len() >= MAX_NAMES {
                self.reported.clear();
            }
            self.reported.insert(hash);
        }
    }
}

fn hash(name: &str) -> u64 {
    Sip13::PUBLIC.hash(name.as_bytes()) as u64
}
