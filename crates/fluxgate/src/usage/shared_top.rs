//! The heaviest identities of the last minute, summed over all instances.
//!
//! Each instance shares those that have the most requests and denials, of two windows. A count of an
//! identity that an instance does not list may be as high as the lowest that it does; so much is added
//! to the count and to its error.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use fluxgate_core::key::RuleNumber;
use serde::{Deserialize, Serialize};

use crate::telemetry::{OutcomeCounts, TopBy, TopEntry, TopList};

/// How many identities each list of an instance has.
const MAX_SHARED: usize = 100;
/// More than this is not read. A list has at most 600 kB.
const MAX_BYTES: u64 = 4 << 20;

/// A window that instances share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TopWindow {
    TenSeconds,
    Minute,
}

impl TopWindow {
    const ALL: [Self; 2] = [Self::TenSeconds, Self::Minute];

    /// Returns the shortest that covers `window`.
    pub(crate) fn covering(window: Duration) -> Self {
        let covers = |it: &Self| window <= it.as_duration();
        Self::ALL.into_iter().find(covers).unwrap_or(Self::Minute)
    }

    pub(crate) const fn as_duration(self) -> Duration {
        match self {
            Self::TenSeconds => Duration::from_secs(10),
            Self::Minute => Duration::from_secs(60),
        }
    }
}

/// What an instance shares.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct SharedTop {
    lists: Vec<SharedList>,
}

/// One of its lists.
#[derive(Debug, Serialize, Deserialize)]
struct SharedList {
    window: TopWindow,
    by_denials: bool,
    total: u64,
    /// The most that an identity may have that is not listed.
    floor: u64,
    entries: Vec<(String, Counts)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    count: u64,
    error: u64,
    outcomes: OutcomeCounts,
}

/// The list of this instance.
#[derive(Debug)]
pub(crate) struct OwnTop {
    total: u64,
    floor: u64,
    entries: Vec<(Option<String>, TopEntry)>,
}

/// The heaviest identities of all instances.
#[derive(Debug, Default)]
pub(crate) struct FleetTop {
    pub(crate) total: u64,
    /// The highest possible count of an identity that is not listed.
    pub(crate) error: u64,
    /// How many instances are summed.
    pub(crate) instances: usize,
    /// Why only this instance is known, if the store failed.
    pub(crate) failure: Option<String>,
    pub(crate) entries: Vec<FleetEntry>,
}

/// One of the heaviest identities: it has at least `count - error`, and at most `count`.
#[derive(Debug)]
pub(crate) struct FleetEntry {
    /// `None` if it is too long for one; then only this instance counts it.
    pub(crate) handle: Option<String>,
    /// As this instance knows it, if it does.
    pub(crate) own: Option<TopEntry>,
    pub(crate) count: u64,
    pub(crate) error: u64,
    pub(crate) outcomes: OutcomeCounts,
}

impl SharedTop {
    /// Collects what this instance shares. `handle` returns the handle of an identity of a rule.
    pub(super) fn collect(
        top: impl Fn(Duration, TopBy, usize) -> TopList,
        handle: impl Fn(RuleNumber, &[u8]) -> Option<String>,
    ) -> Self {
        let mut lists = Vec::new();
        for window in TopWindow::ALL {
            for by in [TopBy::Denied, TopBy::Requests] {
                let list = top(window.as_duration(), by, MAX_SHARED);
                let entries = list.entries.iter().filter_map(|entry| {
                    let counts = Counts {
                        count: entry.count,
                        error: entry.error,
                        outcomes: entry.outcomes,
                    };
                    Some((handle(entry.rule, &entry.identity)?, counts))
                });
                lists.push(SharedList {
                    window,
                    by_denials: by == TopBy::Denied,
                    total: list.total,
                    floor: floor_of(&list, MAX_SHARED),
                    entries: entries.collect(),
                });
            }
        }
        Self { lists }
    }

    /// Returns it as instances write it.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
        // Numbers and texts can always be written as JSON, and writing to memory does not fail.
        let _ = compressed.write_all(&serde_json::to_vec(self).unwrap_or_default());
        compressed.finish().unwrap_or_default()
    }

    /// Reads what an instance wrote.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut json = Vec::new();
        let mut decoder = GzDecoder::new(bytes).take(MAX_BYTES);
        decoder.read_to_end(&mut json).ok()?;
        serde_json::from_slice(&json).ok()
    }
}

impl OwnTop {
    /// Creates it from the list of this instance, which has at most `most`.
    pub(crate) fn new(
        list: TopList,
        most: usize,
        handle: impl Fn(RuleNumber, &[u8]) -> Option<String>,
    ) -> Self {
        let floor = floor_of(&list, most);
        let entries = list.entries.into_iter();
        Self {
            total: list.total,
            floor,
            entries: entries
                .map(|entry| (handle(entry.rule, &entry.identity), entry))
                .collect(),
        }
    }
}

/// Sums the lists of all instances.
pub(super) fn sum(own: OwnTop, others: &[SharedTop], by: TopBy, window: TopWindow) -> FleetTop {
    let by_denials = by == TopBy::Denied;
    let others: Vec<_> = others
        .iter()
        .filter_map(|other| {
            let mut lists = other.lists.iter();
            lists.find(|list| list.window == window && list.by_denials == by_denials)
        })
        .collect();
    // Other instances may have shared anything.
    let floors = { others.iter() }.fold(own.floor, |sum, it| sum.saturating_add(it.floor));
    let mut fleet = FleetTop {
        total: { others.iter() }.fold(own.total, |sum, it| sum.saturating_add(it.total)),
        error: floors,
        instances: 1 + others.len(),
        ..FleetTop::default()
    };
    // With the floors of the lists that have it.
    let mut sums: HashMap<String, (FleetEntry, u64)> = HashMap::new();
    for (handle, entry) in own.entries {
        let found = FleetEntry {
            handle: handle.clone(),
            count: entry.count,
            error: entry.error,
            outcomes: entry.outcomes,
            own: Some(entry),
        };
        match handle {
            Some(handle) => {
                sums.insert(handle, (found, own.floor));
            }
            None => fleet.entries.push(found),
        }
    }
    for list in others {
        for (handle, counts) in &list.entries {
            let (sum, floor) = sums.entry(handle.clone()).or_insert_with(|| {
                let new = FleetEntry {
                    handle: Some(handle.clone()),
                    own: None,
                    count: 0,
                    error: 0,
                    outcomes: OutcomeCounts::default(),
                };
                (new, 0)
            });
            *floor = floor.saturating_add(list.floor);
            sum.count = sum.count.saturating_add(counts.count);
            sum.error = sum.error.saturating_add(counts.error);
            for (sum, count) in sum.outcomes.iter_mut().zip(counts.outcomes) {
                *sum = sum.saturating_add(count);
            }
        }
    }
    for (mut entry, covered) in sums.into_values() {
        // The instances that do not list it may have counted it.
        let hidden = floors.saturating_sub(covered);
        entry.count = entry.count.saturating_add(hidden);
        entry.error = entry.error.saturating_add(hidden);
        fleet.entries.push(entry);
    }
    fleet
}

/// Returns the most that an identity may have that a list with at most `most` entries lacks.
fn floor_of(list: &TopList, most: usize) -> u64 {
    let last = list.entries.last().filter(|_| list.entries.len() >= most);
    last.map_or(list.error, |last| last.count.max(list.error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, u64)], error: u64) -> TopList {
        let entries = entries.iter().map(|(name, count)| TopEntry {
            rule: RuleNumber::NONE,
            identity: name.as_bytes().into(),
            count: *count,
            error: 0,
            outcomes: [*count, 0, 0, 0, 0],
        });
        TopList {
            total: 100,
            error,
            entries: entries.collect(),
        }
    }

    fn name(_: RuleNumber, identity: &[u8]) -> Option<String> {
        let name = String::from_utf8_lossy(identity).into_owned();
        (!name.is_empty()).then_some(name)
    }

    #[test]
    fn counts_are_summed_with_what_lists_may_lack() {
        let shared = |entries: &[(&str, u64)], error| {
            let shared = SharedTop::collect(|_, _, _| list(entries, error), name);
            SharedTop::read(&shared.write()).unwrap()
        };
        let others = [
            shared(&[("ann", 7), ("bob", 5)], 0),
            shared(&[("ann", 1)], 2),
        ];
        let own = OwnTop::new(list(&[("ann", 10), ("carol", 3), ("", 9)], 1), 9, name);
        let fleet = sum(own, &others, TopBy::Denied, TopWindow::Minute);
        assert_eq!((fleet.total, fleet.error, fleet.instances), (300, 3, 3));
        let mut counts: Vec<_> = fleet
            .entries
            .iter()
            .map(|it| (it.handle.as_deref(), it.count, it.error, it.outcomes[0]))
            .collect();
        counts.sort_unstable();
        assert_eq!(
            counts,
            [
                // Too long for a handle.
                (None, 9, 0, 9),
                (Some("ann"), 18, 0, 18),
                (Some("bob"), 8, 3, 5),
                (Some("carol"), 5, 2, 3),
            ]
        );
    }

    #[test]
    fn what_others_write_is_read_or_left_out() {
        assert!(SharedTop::read(b"").is_none());
        assert!(SharedTop::read(b"{}").is_none());
        let full: Vec<_> = (0..MAX_SHARED)
            .map(|number| format!("user-{number}"))
            .collect();
        let full: Vec<_> = full.iter().map(|name| (&**name, 4)).collect();
        let shared = SharedTop::collect(|_, _, _| list(&full, 0), name);
        // Another one may have as many.
        assert_eq!(shared.lists[0].floor, 4);
        assert!(shared.write().len() < 40_000);
    }

    #[test]
    fn a_window_is_covered_by_the_next_longer_one() {
        for (seconds, window) in [(1, 10), (10, 10), (11, 60), (60, 60)] {
            let covering = TopWindow::covering(Duration::from_secs(seconds));
            assert_eq!(covering.as_duration(), Duration::from_secs(window));
        }
    }
}
