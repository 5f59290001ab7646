//! State that is a list of any length: the events of a log, or the slots of holds.

use crate::algorithm::{Log, Slots};
use crate::limit::{Algorithm, Limit};
use crate::time::Timestamp;

/// The state of a sliding log or of concurrency.
#[derive(Debug)]
pub(super) enum List {
    Log(Log),
    Slots(Slots),
}

impl List {
    /// The most items of a list that was made coarse: one for each part of the window, of
    /// which the first and the last are cut.
    pub(super) const MOST_COARSE_ITEMS: usize = Log::MOST_COARSE_EVENTS;

    /// Creates an empty list for a limit.
    pub(super) fn new(limit: &Limit) -> Self {
        match limit.algorithm() {
            Algorithm::Concurrency => Self::Slots(Slots::default()),
            _ => Self::Log(Log::default()),
        }
    }

    /// Returns the log, if it is one. Another list can only be found here if two keys have
    /// the same fingerprint.
    pub(super) fn as_log(&mut self) -> Option<&mut Log> {
        match self {
            Self::Log(log) => Some(log),
            Self::Slots(_) => None,
        }
    }

    /// Returns the slots, if it has any.
    pub(super) fn as_slots(&mut self) -> Option<&mut Slots> {
        match self {
            Self::Slots(slots) => Some(slots),
            Self::Log(_) => None,
        }
    }

    /// Returns the number of items: instants of a log, or holds that have slots.
    pub(super) fn items(&self) -> usize {
        match self {
            Self::Log(log) => log.events(),
            Self::Slots(slots) => slots.holds(),
        }
    }

    /// Returns the units of all items.
    pub(super) fn units(&self) -> u64 {
        match self {
            Self::Log(log) => log.units(),
            Self::Slots(slots) => slots.units(),
        }
    }

    /// Returns the time of the newest event, or the end of the last entry.
    pub(super) fn latest(&self) -> u64 {
        match self {
            Self::Log(log) => log.newest(),
            Self::Slots(slots) => slots.last_end(),
        }
    }

    /// Returns whether no item counts at `now` or later.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        match self {
            Self::Log(log) => log.is_expired(now),
            Self::Slots(slots) => slots.is_expired(now),
        }
    }

    /// Merges items, so that at most [`List::MOST_COARSE_ITEMS`] are left. Their units
    /// return late, never early.
    pub(super) fn coarsen(&mut self) {
        match self {
            Self::Log(log) => log.coarsen(),
            Self::Slots(slots) => slots.coarsen(),
        }
    }
}
