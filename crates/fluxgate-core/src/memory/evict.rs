//! The search for a key to evict.
//!
//! It always covers the line of the new key, the overflow of its shard and the next
//! fifteen lines: some 300 keys of a large store. That is enough unless the keys that may
//! be evicted are rare. Then it continues through the shard and the other shards until
//! there are enough to choose from. If n rules have keys, a rule whose keys may be evicted
//! has at least one of n, and keys are distributed by a secret hash, so the first one is
//! found after about n keys.

use std::sync::MutexGuard;

use super::entry::{Entry, EvictionCost, Key, State};
use super::line::LineGuard;
use super::overflow::Overflow;
use super::shard::Shard;
use super::shares::EvictionClaim;
use super::table::Table;
use crate::time::Timestamp;

/// The lines that are always searched: the key's own and those after it.
const NEAR_LINES: usize = 16;
/// The number of keys that is enough to choose from.
const ENOUGH_KEYS: usize = 16;
/// The number of lines after which one key is enough.
const ENOUGH_LINES: usize = 2048;

/// Finds the cheapest key to evict for a new one, whose line is locked, and whose overflow may be.
pub(super) fn find_victim<'t>(
    table: &'t Table,
    key: &Key,
    (line, overflow): (&LineGuard<'t>, Option<&Overflow>),
    claim: EvictionClaim,
    now: Timestamp,
) -> Option<Victim<'t>> {
    let own = key.shard as usize;
    let mut search = VictimSearch {
        table,
        claim,
        now,
        keys: 0,
        lines: 0,
        best: None,
    };
    let found = search.cheapest_in(line);
    search.keep(found, VictimLocation::OwnLine);
    if let Some(overflow) = overflow {
        let found = search.cheapest_of(overflow);
        search.keep(found, |_| VictimLocation::OwnOverflow);
    }
    let home = Shard::line_of(key.fingerprint, table.shards[own].lines());
    search.lines(own, home + 1, NEAR_LINES - 1);
    if overflow.is_none() && !search.is_over() {
        search.overflow(own);
    }
    let shards = table.shards.len();
    for other in (1..shards).map(|step| (own + step) % shards) {
        if search.is_over() {
            break;
        }
        search.overflow(other);
        search.lines(other, 0, 0);
    }
    search.best
}

/// A key to evict.
pub(super) struct Victim<'t> {
    cost: EvictionCost,
    pub(super) entry: Entry,
    pub(super) location: VictimLocation<'t>,
}

/// The place of a key to evict.
pub(super) enum VictimLocation<'t> {
    /// In the new key's line, which the request has locked.
    OwnLine(usize),
    /// In the new key's overflow, which the request has locked.
    OwnOverflow,
    /// In a line of the shard with this index.
    Line(usize, LineGuard<'t>, usize),
    Overflow(MutexGuard<'t, Overflow>),
}

struct VictimSearch<'t> {
    table: &'t Table,
    claim: EvictionClaim,
    now: Timestamp,
    /// The number of keys found that may be evicted.
    keys: usize,
    /// The number of lines searched.
    lines: usize,
    best: Option<Victim<'t>>,
}

impl<'t> VictimSearch<'t> {
    /// Returns whether there is enough to choose from.
    fn is_over(&self) -> bool {
        let Some(best) = &self.best else {
            return false;
        };
        self.keys >= ENOUGH_KEYS || self.lines >= ENOUGH_LINES || best.cost.is_small()
    }

    /// Searches the lines of a shard from `first` on, at least `least` of them. Lines that
    /// this or another request has locked are skipped.
    fn lines(&mut self, shard: usize, first: usize, least: usize) {
        let lines = self.table.shards[shard].lines_if_any().unwrap_or_default();
        for step in 0..lines.len() {
            if step >= least && self.is_over() {
                break;
            }
            self.lines += 1;
            let Some(line) = lines[(first + step) % lines.len()].try_lock() else {
                continue;
            };
            // The keys of a replaced line have moved.
            if line.is_retired() {
                continue;
            }
            let found = self.cheapest_in(&line);
            self.keep(found, |index| VictimLocation::Line(shard, line, index));
        }
    }

    fn overflow(&mut self, shard: usize) {
        if let Some(overflow) = self.table.shards[shard].overflow.try_lock() {
            let found = self.cheapest_of(&overflow);
            self.keep(found, |_| VictimLocation::Overflow(overflow));
        }
    }

    /// Returns the key with the smallest cost that may be evicted, by its index.
    fn cheapest(
        &mut self,
        states: impl Iterator<Item = (usize, State)>,
    ) -> Option<(EvictionCost, usize)> {
        let mut least: Option<(EvictionCost, usize)> = None;
        for (index, state) in states {
            if !self.table.may_evict(&self.claim, state, self.now) {
                continue;
            }
            self.keys += 1;
            let cost = state.eviction_cost(self.now);
            if least.is_none_or(|(least, _)| cost < least) {
                least = Some((cost, index));
            }
        }
        least
    }

    fn cheapest_in(&mut self, line: &LineGuard<'_>) -> Option<(EvictionCost, Entry, usize)> {
        let states = line.entries().map(|(index, entry)| (index, entry.state));
        let (cost, index) = self.cheapest(states)?;
        let (_, entry) = line.entries().find(|(entry, _)| *entry == index)?;
        Some((cost, entry, index))
    }

    fn cheapest_of(&mut self, overflow: &Overflow) -> Option<(EvictionCost, Entry, usize)> {
        let states = overflow.states().iter().copied().enumerate();
        let (cost, index) = self.cheapest(states)?;
        Some((cost, overflow.entry(index), index))
    }

    /// Keeps a key if its cost is smaller than the smallest so far.
    fn keep(
        &mut self,
        found: Option<(EvictionCost, Entry, usize)>,
        location: impl FnOnce(usize) -> VictimLocation<'t>,
    ) {
        if let Some((cost, entry, index)) = found
            && self.best.as_ref().is_none_or(|best| cost < best.cost)
        {
            let location = location(index);
            self.best = Some(Victim {
                cost,
                entry,
                location,
            });
        }
    }
}
