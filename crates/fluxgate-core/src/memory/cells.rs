//! One shard of packed states: a small open-addressing table.

use smallvec::SmallVec;

use super::slot::{Print, Slot};
use crate::time::Timestamp;

/// A shard fits one cache line together with its lock. A key that is alone in
/// its shard lives right there; the others are in a table beside it, which is
/// probed linearly, a cache line at a time.
#[derive(Debug, Default)]
pub(super) struct CellShard {
    first: Slot,
    table: Box<[Line]>,
    /// Slots of the table that are in use.
    used: u32,
}

/// As many slots as a cache line holds. Every key has a line as its home.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([Slot; 2]);

const SLOTS_PER_LINE: usize = 2;
const SMALLEST_TABLE: usize = 2;

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    First,
    Table { line: usize, slot: usize },
}

impl CellShard {
    pub(super) fn len(&self) -> usize {
        self.used as usize + usize::from(!self.first.is_empty())
    }

    /// Where a key stands, if it is there.
    pub(super) fn find(&self, print: Print) -> Option<Place> {
        if self.first.has(print) {
            return Some(Place::First);
        }
        let mut line = start_of(print.home(), self.table.len());
        // There is always an empty slot, so the walk ends before the table does.
        for _ in 0..self.table.len() {
            for (slot, known) in self.table[line].0.iter().enumerate() {
                if known.has(print) {
                    return Some(Place::Table { line, slot });
                }
                if known.is_empty() {
                    return None;
                }
            }
            line = next(line, self.table.len());
        }
        None
    }

    /// What stands at a place that [`CellShard::find`] told.
    pub(super) fn slot(&self, place: Place) -> &Slot {
        match place {
            Place::First => &self.first,
            Place::Table { line, slot } => &self.table[line].0[slot],
        }
    }

    /// Whether a key still stands where it stood.
    pub(super) fn holds(&self, place: Place, print: Print) -> bool {
        match place {
            Place::First => self.first.has(print),
            Place::Table { line, slot } => {
                let line = self.table.get(line);
                line.is_some_and(|line| line.0[slot].has(print))
            }
        }
    }

    /// Replaces what stands at such a place.
    pub(super) fn set(&mut self, place: Place, state: Slot) {
        match place {
            Place::First => self.first = state,
            Place::Table { line, slot } => self.table[line].0[slot] = state,
        }
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, slot: Slot) {
        if self.first.is_empty() {
            self.first = slot;
            return;
        }
        if self.is_full() {
            self.grow();
        }
        self.place(slot);
    }

    /// Whether one more key would make the table grow.
    pub(super) fn is_full(&self) -> bool {
        let slots = self.table.len() * SLOTS_PER_LINE;
        !self.first.is_empty() && (self.used as usize + 1) * 4 > slots * 3
    }

    /// Forgets a key; says whether it was there.
    pub(super) fn remove(&mut self, print: Print) -> bool {
        match self.find(print) {
            Some(place) => self.remove_at(place),
            None => return false,
        }
        true
    }

    /// Forgets every slot that `keep` does not want; says how many went.
    pub(super) fn retain(&mut self, keep: impl Fn(&Slot) -> bool) -> usize {
        let before = self.len();
        if !self.first.is_empty() && !keep(&self.first) {
            self.first = Slot::default();
        }
        let kept: SmallVec<[Slot; 32]> = self.slots().filter(|slot| keep(slot)).collect();
        if kept.len() < self.used as usize {
            self.lay(&kept);
        }
        before - self.len()
    }

    /// Forgets the one key that costs least to forget; says whether there was one.
    pub(super) fn evict(&mut self, now: Timestamp) -> bool {
        let in_table = self.table.iter().enumerate().flat_map(|(line, slots)| {
            let slots = slots.0.iter().enumerate();
            slots.map(move |(slot, state)| (Place::Table { line, slot }, state))
        });
        let all = in_table.chain([(Place::First, &self.first)]);
        let cheapest = all
            .filter(|(_, state)| !state.is_empty())
            .min_by_key(|(_, state)| state.loss(now));
        match cheapest.map(|(place, _)| place) {
            Some(place) => self.remove_at(place),
            None => return false,
        }
        true
    }

    fn place(&mut self, state: Slot) {
        let mut line = start_of(state.home(), self.table.len());
        loop {
            let mut slots = self.table[line].0.iter_mut();
            if let Some(empty) = slots.find(|slot| slot.is_empty()) {
                *empty = state;
                self.used += 1;
                return;
            }
            line = next(line, self.table.len());
        }
    }

    /// Forgets what stands there and closes the gap: a walk from any key's home
    /// must not meet an empty slot before the key.
    fn remove_at(&mut self, place: Place) {
        let Place::Table { mut line, mut slot } = place else {
            self.first = Slot::default();
            return;
        };
        self.used -= 1;
        loop {
            // The gap moves to the end of its line, where a walk would end.
            let last = SLOTS_PER_LINE - 1;
            self.table[line].0.copy_within(slot + 1.., slot);
            self.table[line].0[last] = Slot::default();
            match self.find_filler(line) {
                Some(filler) => {
                    self.table[line].0[last] = self.table[filler.0].0[filler.1];
                    (line, slot) = filler;
                }
                None => return,
            }
        }
    }

    /// The first key after `gap` that a walk from its home reaches only through
    /// `gap`'s line.
    fn find_filler(&self, gap: usize) -> Option<(usize, usize)> {
        let length = self.table.len();
        let mut line = next(gap, length);
        while line != gap {
            for (slot, state) in self.table[line].0.iter().enumerate() {
                if state.is_empty() {
                    return None;
                }
                let home = start_of(state.home(), length);
                let from_home = (line + length - home) % length;
                let from_gap = (line + length - gap) % length;
                if from_home >= from_gap {
                    return Some((line, slot));
                }
            }
            line = next(line, length);
        }
        None
    }

    /// Makes room for half as many again.
    fn grow(&mut self) {
        let kept: SmallVec<[Slot; 32]> = self.slots().collect();
        self.table = Box::default();
        self.lay(&kept);
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        let slots = self.table.iter().flat_map(|line| line.0);
        slots.filter(|slot| !slot.is_empty())
    }

    /// Lays the table anew with just these slots. A table that is neither too
    /// small nor far too large is used again.
    fn lay(&mut self, slots: &[Slot]) {
        let wanted = ((slots.len() + 1) * 7 / 8).max(SMALLEST_TABLE);
        if (wanted..=8 * wanted).contains(&self.table.len()) {
            self.table.fill(Line::default());
        } else {
            self.table = vec![Line::default(); wanted].into();
        }
        self.used = 0;
        for slot in slots {
            self.place(*slot);
        }
    }
}

/// Spreads homes over any number of lines without a division.
fn start_of(home: u32, length: usize) -> usize {
    ((u64::from(home) * length as u64) >> 32) as usize
}

fn next(index: usize, length: usize) -> usize {
    if index + 1 == length { 0 } else { index + 1 }
}
