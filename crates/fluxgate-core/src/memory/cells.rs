//! One shard of packed states: a small open-addressing table.

use super::slot::{Print, Slot};
use crate::time::Timestamp;

/// A shard fits one cache line together with its lock. A key that is alone in
/// its shard lives right there; the others are in a table beside it, probed
/// linearly.
#[derive(Debug, Default)]
pub(super) struct CellShard {
    first: Slot,
    table: Box<[TableSlot]>,
    /// Slots of the table that are in use.
    used: u32,
}

/// Never across two cache lines.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct TableSlot(Slot);

const SMALLEST_TABLE: usize = 4;

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    First,
    Table(usize),
}

impl CellShard {
    pub(super) fn len(&self) -> usize {
        self.used as usize + usize::from(!self.first.is_empty())
    }

    pub(super) fn get(&self, print: Print) -> Option<&Slot> {
        Some(self.slot(self.find(print)?))
    }

    /// Replaces the state of a key that is there; says whether it was.
    pub(super) fn replace(&mut self, print: Print, slot: Slot) -> bool {
        match self.find(print) {
            Some(Place::First) => self.first = slot,
            Some(Place::Table(index)) => self.table[index].0 = slot,
            None => return false,
        }
        true
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, slot: Slot) {
        if self.first.is_empty() {
            self.first = slot;
            return;
        }
        if self.is_full() {
            self.rebuild();
        }
        self.place(slot);
    }

    /// Whether one more key would make the table grow.
    pub(super) fn is_full(&self) -> bool {
        !self.first.is_empty() && (self.used as usize + 1) * 5 > self.table.len() * 4
    }

    pub(super) fn remove(&mut self, print: Print) -> bool {
        match self.find(print) {
            Some(Place::First) => self.first = Slot::default(),
            Some(Place::Table(index)) => self.remove_at(index),
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
        for entry in &mut self.table {
            if !entry.0.is_empty() && !keep(&entry.0) {
                entry.0 = Slot::default();
                self.used -= 1;
            }
        }
        let gone = before - self.len();
        if gone > 0 {
            self.rebuild();
        }
        gone
    }

    /// Forgets the one slot that costs least to forget; says whether there was one.
    pub(super) fn evict(&mut self, now: Timestamp) -> bool {
        let first = (!self.first.is_empty()).then(|| (self.first.loss(now), Place::First));
        let table = self.table.iter().enumerate();
        let cheapest = table
            .filter(|(_, entry)| !entry.0.is_empty())
            .map(|(index, entry)| (entry.0.loss(now), Place::Table(index)))
            .chain(first)
            .min_by_key(|(loss, _)| *loss);
        match cheapest {
            None => return false,
            Some((_, Place::First)) => self.first = Slot::default(),
            Some((_, Place::Table(index))) => self.remove_at(index),
        }
        true
    }

    fn slot(&self, place: Place) -> &Slot {
        match place {
            Place::First => &self.first,
            Place::Table(index) => &self.table[index].0,
        }
    }

    fn find(&self, print: Print) -> Option<Place> {
        if self.first.has(print) {
            return Some(Place::First);
        }
        let mut index = start_of(print.home(), self.table.len());
        // There is always an empty slot, so the walk ends.
        for _ in 0..self.table.len() {
            let slot = &self.table[index].0;
            if slot.is_empty() {
                return None;
            }
            if slot.has(print) {
                return Some(Place::Table(index));
            }
            index = next(index, self.table.len());
        }
        None
    }

    fn place(&mut self, slot: Slot) {
        let mut index = start_of(slot.home(), self.table.len());
        while !self.table[index].0.is_empty() {
            index = next(index, self.table.len());
        }
        self.table[index].0 = slot;
        self.used += 1;
    }

    /// Closes the gap, so that no key is cut off from its home.
    fn remove_at(&mut self, mut gap: usize) {
        let length = self.table.len();
        let mut index = gap;
        loop {
            index = next(index, length);
            let slot = self.table[index].0;
            if slot.is_empty() {
                break;
            }
            let start = start_of(slot.home(), length);
            // It may move to the gap if the gap lies on its way from its home.
            let from_home = (index + length - start) % length;
            let from_gap = (index + length - gap) % length;
            if from_home >= from_gap {
                self.table[gap].0 = slot;
                gap = index;
            }
        }
        self.table[gap].0 = Slot::default();
        self.used -= 1;
    }

    /// Lays the table anew, with room for half as many again.
    fn rebuild(&mut self) {
        let wanted = (self.used as usize + 1) * 13 / 8 + 1;
        let table = vec![TableSlot::default(); wanted.max(SMALLEST_TABLE)];
        let old = std::mem::replace(&mut self.table, table.into());
        self.used = 0;
        for entry in old.iter().filter(|entry| !entry.0.is_empty()) {
            self.place(entry.0);
        }
    }
}

/// Spreads homes over any number of slots without a division.
fn start_of(home: u32, length: usize) -> usize {
    ((u64::from(home) * length as u64) >> 32) as usize
}

fn next(index: usize, length: usize) -> usize {
    if index + 1 == length { 0 } else { index + 1 }
}
