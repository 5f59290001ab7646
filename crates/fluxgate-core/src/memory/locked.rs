//! The locked keys of one request.
//!
//! Every request locks in the same order: lines by shard and index, then overflows by
//! shard. Lines of other keys, in a search for a key to evict, are locked only if they are
//! free.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::entry::{Entry, LimitBits, State};
use super::line::{Line, LineGuard};
use super::overflow::Overflow;
use super::shard::Shard;
use super::table::{Key, Table};
use crate::algorithm::{Adjusted, Adjustment, Assessment, Cell, CounterAssessment, Mode, Verdict};
use crate::band::Band;
use crate::hold::HoldId;
use crate::limit::FracMicros;
use crate::store::{Counters, HoldRequest};
use crate::time::{Micros, Timestamp};

/// The keys of one request, with the locks of their lines and overflows.
pub(super) struct LockedKeys<'t, 'k> {
    pub(super) table: &'t Table,
    pub(super) keys: &'k [Key],
    lines: SmallVec<[LineGuard<'t>; 4]>,
    /// The index of each key's line.
    line_indices: SmallVec<[u16; 8]>,
    overflows: SmallVec<[(u32, MutexGuard<'t, Overflow>); 1]>,
    /// The hold that takes slots, and its requested lifetime.
    pub(super) hold: Option<(HoldId, Option<Micros>)>,
    /// The events that the hold was charged by logs, by the index of the key.
    pub(super) log_marks: SmallVec<[(usize, u64); 1]>,
    /// Shards that should grow.
    crowded: SmallVec<[(u32, Timestamp); 1]>,
}

/// The line that a key belongs to.
#[derive(Clone, Copy)]
struct LineRef<'t> {
    shard: u32,
    index: usize,
    line: &'t Line,
}

impl LineRef<'_> {
    fn order(&self) -> (u32, usize) {
        (self.shard, self.index)
    }
}

impl<'t, 'k> LockedKeys<'t, 'k> {
    /// Locks these keys. All methods refer to them by their index.
    pub(super) fn new(table: &'t Table, keys: &'k [Key]) -> Self {
        loop {
            if let Some(locked) = Self::try_new(table, keys) {
                return locked;
            }
        }
    }

    /// Returns `None` if a shard has just grown.
    fn try_new(table: &'t Table, keys: &'k [Key]) -> Option<Self> {
        let mut locked = Self {
            table,
            keys,
            lines: SmallVec::new(),
            line_indices: SmallVec::new(),
            overflows: SmallVec::new(),
            hold: None,
            log_marks: SmallVec::new(),
            crowded: SmallVec::new(),
        };
        locked.lock_lines()?;
        locked.lock_overflows();
        Some(locked)
    }

    fn lock_lines(&mut self) -> Option<()> {
        let mut line_refs: SmallVec<[LineRef<'t>; 4]> = SmallVec::new();
        for key in self.keys {
            let lines = self.table.shards[key.shard as usize].lines();
            let index = Shard::line_of(key.fingerprint, lines);
            line_refs.push(LineRef {
                shard: key.shard,
                index,
                line: &lines[index],
            });
        }
        let mut in_order = line_refs.clone();
        in_order.sort_unstable_by_key(LineRef::order);
        in_order.dedup_by_key(|line_ref| line_ref.order());
        for line_ref in &in_order {
            let guard = line_ref.line.lock();
            // The shard has grown since, and the key belongs to another line.
            if guard.is_retired() {
                return None;
            }
            self.lines.push(guard);
        }
        for line_ref in &line_refs {
            let mut in_order = in_order.iter();
            let index = in_order.position(|other| other.order() == line_ref.order());
            self.line_indices.push(index.unwrap_or(0) as u16);
        }
        Some(())
    }

    /// Locks the overflows that may contain a key or may have to store one.
    fn lock_overflows(&mut self) {
        let mut shards: SmallVec<[u32; 4]> = SmallVec::new();
        for (at, key) in self.keys.iter().enumerate() {
            let line = self.line(at);
            let may_be_elsewhere = || {
                line.find(key.fingerprint).is_none()
                    && (line.is_spilled() || line.find_empty().is_none() || self.has_company(key))
            };
            if key.is_list || may_be_elsewhere() {
                shards.push(key.shard);
            }
        }
        shards.sort_unstable();
        shards.dedup();
        for shard in shards {
            let overflow = self.table.shards[shard as usize].overflow.lock();
            self.overflows.push((shard, overflow));
        }
    }

    /// Returns whether another key of the request may take the last entry of the line.
    fn has_company(&self, key: &Key) -> bool {
        let mut others = self.keys.iter().filter(|other| *other != key);
        others.any(|other| other.shard == key.shard)
    }

    /// Takes slots for this hold.
    pub(super) fn for_hold(mut self, hold: Option<&HoldRequest<'_>>) -> Self {
        self.hold = hold.map(|hold| (hold.id, hold.span));
        self
    }

    /// Refunds units. Slots are released by their holds only.
    pub(super) fn refund(&mut self, at: usize, band: &Band, now: Timestamp, units: u64) {
        let limit = band.limit();
        if self.keys[at].is_list {
            self.change_list(at, band, |list| {
                if let Some(log) = list.as_log() {
                    log.refund(limit, now, units);
                }
            });
        } else if let Some(cell) = self.cell(at, band) {
            self.set_cell(at, band, now, Cell::refund(limit, cell, now, units));
        }
    }

    /// Cancels a charge that went to `mark`.
    pub(super) fn cancel(
        &mut self,
        at: usize,
        band: &Band,
        now: Timestamp,
        units: u64,
        mark: FracMicros,
    ) {
        if self.keys[at].is_list {
            self.change_list(at, band, |list| {
                if let Some(log) = list.as_log() {
                    log.cancel(mark.whole, units);
                }
            });
        } else if let Some(cell) = self.cell(at, band) {
            let cancelled = Cell::cancel(band.limit(), cell, now, units, mark);
            self.set_cell(at, band, now, cancelled);
        }
    }

    fn set_cell(&mut self, at: usize, band: &Band, now: Timestamp, cell: Option<Cell>) {
        match cell {
            Some(cell) => self.write(at, self.keys[at].entry(band, &cell), now),
            None => {
                self.remove(at);
            }
        }
    }

    /// Deletes a key. Returns whether it existed.
    pub(super) fn remove(&mut self, at: usize) -> bool {
        let key = self.keys[at];
        let in_line = self.line(at).find(key.fingerprint);
        if let Some(entry) = in_line {
            self.line_mut(at).clear(entry);
        }
        let table = self.table;
        let overflow = self.overflow(key.shard);
        let in_overflow =
            overflow.is_some_and(|overflow| overflow.remove(key.fingerprint, &table.items));
        let existed = in_line.is_some() || in_overflow;
        table.release(key.rule.get(), usize::from(existed));
        existed
    }

    fn cell(&mut self, at: usize, band: &Band) -> Option<Cell> {
        self.state(at)?.cell(LimitBits::of(band.limit()))
    }

    pub(super) fn state(&mut self, at: usize) -> Option<State> {
        let key = &self.keys[at];
        let line = self.line(at);
        match line.find(key.fingerprint) {
            Some(entry) => Some(line.state(entry)),
            None => self.overflow(key.shard)?.get(key.fingerprint),
        }
    }

    /// Writes the state of a key, which need not exist.
    pub(super) fn write(&mut self, at: usize, entry: Entry, now: Timestamp) {
        if !self.replace(at, entry) {
            self.insert(at, entry, now);
        }
    }

    /// Writes the state of a key if it exists. Returns whether it does.
    pub(super) fn replace(&mut self, at: usize, entry: Entry) -> bool {
        let key = &self.keys[at];
        let fingerprint = key.fingerprint;
        let line = self.line_mut(at);
        if let Some(index) = line.find(fingerprint) {
            line.set_state(index, entry.state);
            return true;
        }
        let overflow = self.overflow(key.shard);
        match overflow.filter(|overflow| overflow.get(fingerprint).is_some()) {
            Some(overflow) => {
                overflow.set(entry);
                true
            }
            None => false,
        }
    }

    /// Adds a key that does not exist.
    fn insert(&mut self, at: usize, entry: Entry, now: Timestamp) {
        let table = self.table;
        let rule = self.keys[at].rule.get();
        let line = self.line_mut(at);
        let empty = line.find_empty();
        if let Some(index) = empty
            && table.try_reserve()
        {
            table.keys.add(rule, 1);
            line.set(index, entry);
            return;
        }
        // Expired keys stay as long as there is room: they cost nothing, and are found at
        // once if they return.
        let expired = line
            .entries()
            .find(|(_, entry)| table.is_expired(entry.state, now));
        if let Some((index, expired)) = expired {
            let replaced = expired.state.rule();
            if replaced != rule {
                table.keys.add(rule, 1);
                table.keys.subtract(replaced, 1);
            }
            line.set(index, entry);
            return;
        }
        table.keys.add(rule, 1);
        if empty.is_some() || !table.try_reserve() {
            if !self.evict(at, now) {
                // The table is full, and other requests hold every key that may be
                // evicted. Only then it holds one key more, for a charge is never
                // dropped.
                table.keys.reserve(1);
            } else if table.is_over() && self.evict(at, now) {
                table.keys.release(1);
            }
        }
        let line = self.line_mut(at);
        if let Some(index) = line.find_empty() {
            line.set(index, entry);
            return;
        }
        line.spill();
        let shard = self.keys[at].shard;
        let overflow = self.locked_overflow(shard);
        if overflow.len().is_power_of_two() {
            overflow.retain(|state| !table.release_expired(state, now));
        }
        overflow.set(entry);
        if table.shards[shard as usize].is_crowded(overflow.len(), &table.sizes) {
            self.crowded.push((shard, now));
        }
    }

    pub(super) fn line(&self, at: usize) -> &LineGuard<'t> {
        &self.lines[usize::from(self.line_indices[at])]
    }

    pub(super) fn line_mut(&mut self, at: usize) -> &mut LineGuard<'t> {
        &mut self.lines[usize::from(self.line_indices[at])]
    }

    pub(super) fn overflow(&mut self, shard: u32) -> Option<&mut Overflow> {
        let mut overflows = self.overflows.iter_mut();
        let found = overflows.find(|(locked, _)| *locked == shard);
        found.map(|(_, overflow)| &mut **overflow)
    }

    pub(super) fn locked_overflow(&mut self, shard: u32) -> &mut Overflow {
        let overflow = self.overflow(shard);
        overflow.expect("every key that may need an overflow has locked it")
    }
}

impl Counters for LockedKeys<'_, '_> {
    fn is_same(&self, one: usize, other: usize) -> bool {
        self.keys[one] == self.keys[other]
    }

    fn assess(
        &mut self,
        at: usize,
        band: &Band,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> CounterAssessment {
        if self.keys[at].is_list {
            return self.assess_list(at, band, now, cost, mode);
        }
        let cell = self.cell(at, band);
        CounterAssessment::Cell(Cell::assess(band.limit(), cell, now, cost, mode))
    }

    fn assess_charged(
        &mut self,
        at: usize,
        band: &Band,
        now: Timestamp,
        units: u64,
        cost: u64,
    ) -> Verdict {
        if self.keys[at].is_list {
            return self.assess_charged_log(at, band, now, units, cost);
        }
        let cell = self.cell(at, band);
        Cell::assess_charged(band.limit(), cell, now, units, cost)
    }

    fn correct(&mut self, at: usize, band: &Band, assessment: &CounterAssessment) {
        let CounterAssessment::Cell(Assessment { corrected, .. }) = assessment else {
            return self.correct_list(at, band, assessment);
        };
        if let Some(cell) = corrected {
            self.replace(at, self.keys[at].entry(band, cell));
        }
    }

    fn charge(&mut self, at: usize, band: &Band, now: Timestamp, assessment: &CounterAssessment) {
        let CounterAssessment::Cell(assessment) = assessment else {
            return self.charge_list(at, band, now, assessment);
        };
        if let Some(cell) = assessment.to_write() {
            self.write(at, self.keys[at].entry(band, cell), now);
        }
    }

    fn adjust(&mut self, at: usize, band: &Band, now: Timestamp, adjustment: &Adjustment) -> u64 {
        if self.keys[at].is_list {
            return self.adjust_log(at, band, now, adjustment);
        }
        let cell = self.cell(at, band);
        let Adjusted { state, uncharged } = Cell::adjust(band.limit(), cell, now, adjustment);
        if state.is_some() {
            self.set_cell(at, band, now, state);
        }
        uncharged
    }

    fn release(&mut self, at: usize, band: &Band, hold: HoldId) {
        self.change_list(at, band, |list| {
            if let Some(slots) = list.as_slots() {
                slots.release(hold);
            }
        });
    }

    fn renew(
        &mut self,
        at: usize,
        band: &Band,
        hold: HoldId,
        now: Timestamp,
        span: Micros,
    ) -> Option<u64> {
        let mut end = None;
        self.change_list(at, band, |list| {
            end = list
                .as_slots()
                .and_then(|slots| slots.renew(hold, now, span));
        });
        end
    }

    fn end_of_slots(&mut self, at: usize, _: &Band, hold: HoldId) -> Option<u64> {
        self.list(at)?.as_slots()?.end_of(hold)
    }
}

impl Drop for LockedKeys<'_, '_> {
    /// Releases the locks, then grows crowded shards.
    fn drop(&mut self) {
        if self.crowded.is_empty() {
            return;
        }
        self.lines.clear();
        self.overflows.clear();
        for (shard, now) in std::mem::take(&mut self.crowded) {
            let table = self.table;
            let shard = &table.shards[shard as usize];
            shard.grow(&table.sizes, |state| !table.release_expired(state, now));
        }
    }
}
