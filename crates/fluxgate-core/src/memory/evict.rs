//! The search for a key to evict.
//!
//! What is at hand is looked at whole: the line of the new key, the overflow of
//! its shard and fifteen lines beside it, some 300 keys of a large store. That
//! is enough unless the keys that may be evicted are rare. Then the search goes
//! on, through the shard and the other shards, until it has seen enough of them
//! to choose from. A rule whose keys may be evicted holds at least one key of
//! every n where n rules have keys, and keys are spread by a secret hash, so
//! the first one is found after about n keys.

use std::sync::MutexGuard;

use super::held::Held;
use super::line::LineGuard;
use super::shard::{Overflow, Shard};
use super::shares::Claim;
use super::slot::{Loss, Slot, State};
use super::table::Table;
use crate::time::Timestamp;

/// How many lines are at hand: a key's own and those beside it.
const LINES_AT_HAND: usize = 16;
/// How many keys are enough to choose from.
const ENOUGH_KEYS: usize = 16;
/// After how many lines a single key is enough.
const ENOUGH_LINES: usize = 2048;
/// How often a search is repeated because the counts have changed meanwhile.
const TRIES: usize = 4;

impl<'t> Held<'t, '_> {
    /// Evicts a key for a new one, which must not be there yet; returns whether
    /// there was one to evict. The total stays as it is.
    pub(super) fn evict(&mut self, at: usize, now: Timestamp) -> bool {
        for _ in 0..TRIES {
            let claim = self.table.claim(self.keys[at].rule);
            let Some(found) = self.find_victim(at, claim, now) else {
                return false;
            };
            if self.table.take_key(&claim, found.slot.state, now) {
                self.clear(at, found);
                return true;
            }
        }
        false
    }

    fn find_victim(&mut self, at: usize, claim: Claim, now: Timestamp) -> Option<Found<'t>> {
        let table = self.table;
        let own = self.keys[at].shard as usize;
        let mut search = Search {
            table,
            claim,
            now,
            keys: 0,
            lines: 0,
            best: None,
        };
        let found = search.cheapest_in(self.line(at));
        search.keep(found, Spot::OwnLine);
        let mut is_held = false;
        if let Some(overflow) = self.overflow(own as u32) {
            is_held = true;
            let found = search.cheapest_of(overflow);
            search.keep(found, |_| Spot::OwnOverflow);
        }
        let shard = &table.shards[own];
        let home = Shard::line_of(self.keys[at].print, shard.lines());
        search.lines(own, home + 1, LINES_AT_HAND - 1);
        if !is_held && !search.is_over() {
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

    fn clear(&mut self, at: usize, Found { slot, spot, .. }: Found<'t>) {
        let (table, print) = (self.table, slot.print());
        let shard = match spot {
            Spot::OwnLine(index) => {
                self.line_mut(at).clear(index);
                self.keys[at].shard
            }
            Spot::OwnOverflow => {
                let shard = self.keys[at].shard;
                self.held_overflow(shard).remove(print, &table.events);
                return;
            }
            Spot::Line(shard, mut line, index) => {
                line.clear(index);
                shard as u32
            }
            Spot::Overflow(mut overflow) => {
                overflow.remove(print, &table.events);
                return;
            }
        };
        if !slot.state.is_log() {
            return;
        }
        // A log goes with its stand-in. If the overflow is busy, it goes when it
        // is spent.
        if let Some(overflow) = self.overflow(shard) {
            overflow.remove_log(print, &table.events);
        } else if let Ok(mut overflow) = table.shards[shard as usize].overflow.try_lock() {
            overflow.remove_log(print, &table.events);
        }
    }
}

/// A key to evict.
struct Found<'t> {
    loss: Loss,
    slot: Slot,
    spot: Spot<'t>,
}

/// Where a key to evict is.
enum Spot<'t> {
    /// In the new key's line, which the request holds.
    OwnLine(usize),
    /// In the new key's overflow, which the request holds.
    OwnOverflow,
    /// In a line of the shard with this number.
    Line(usize, LineGuard<'t>, usize),
    Overflow(MutexGuard<'t, Overflow>),
}

struct Search<'t> {
    table: &'t Table,
    claim: Claim,
    now: Timestamp,
    /// How many keys that may be evicted it has seen.
    keys: usize,
    /// How many lines it has seen.
    lines: usize,
    best: Option<Found<'t>>,
}

impl<'t> Search<'t> {
    /// Whether enough has been seen to choose from.
    fn is_over(&self) -> bool {
        let Some(best) = &self.best else {
            return false;
        };
        self.keys >= ENOUGH_KEYS || self.lines >= ENOUGH_LINES || best.loss.is_small()
    }

    /// Looks through the lines of a shard from `first` on, through `least` of them
    /// at least. Lines that this or another request holds are passed over.
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
            // What is in a line that has been replaced is somewhere else now.
            if line.is_retired() {
                continue;
            }
            let found = self.cheapest_in(&line);
            self.keep(found, |index| Spot::Line(shard, line, index));
        }
    }

    fn overflow(&mut self, shard: usize) {
        if let Ok(overflow) = self.table.shards[shard].overflow.try_lock() {
            let found = self.cheapest_of(&overflow);
            self.keep(found, |_| Spot::Overflow(overflow));
        }
    }

    /// The key that costs least of those that may be evicted, by its index.
    fn cheapest(&mut self, states: impl Iterator<Item = (usize, State)>) -> Option<(Loss, usize)> {
        let mut least: Option<(Loss, usize)> = None;
        for (index, state) in states {
            if !self.table.may_evict(&self.claim, state, self.now) {
                continue;
            }
            self.keys += 1;
            let loss = state.loss(self.now);
            if least.is_none_or(|(least, _)| loss < least) {
                least = Some((loss, index));
            }
        }
        least
    }

    fn cheapest_in(&mut self, line: &LineGuard<'_>) -> Option<(Loss, Slot, usize)> {
        let states = line.slots().map(|(index, slot)| (index, slot.state));
        let (loss, index) = self.cheapest(states)?;
        let (_, slot) = line.slots().find(|(slot, _)| *slot == index)?;
        Some((loss, slot, index))
    }

    fn cheapest_of(&mut self, overflow: &Overflow) -> Option<(Loss, Slot, usize)> {
        let states = overflow.states().iter().copied().enumerate();
        let (loss, index) = self.cheapest(states)?;
        Some((loss, overflow.slot(index), index))
    }

    /// Keeps a key if it costs less than the best so far.
    fn keep(&mut self, found: Option<(Loss, Slot, usize)>, spot: impl FnOnce(usize) -> Spot<'t>) {
        if let Some((loss, slot, index)) = found
            && self.best.as_ref().is_none_or(|best| loss < best.loss)
        {
            let spot = spot(index);
            self.best = Some(Found { loss, slot, spot });
        }
    }
}
