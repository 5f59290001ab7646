//! The locks that one request holds, and what it does under them.
//!
//! The order is the same for everybody: lines by shard and place, then
//! overflows by shard. Lines of other keys, looked at for something to evict,
//! are taken only if nobody has them.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::Retention;
use super::line::{Line, LineGuard};
use super::shard::{Overflow, Shard, recount};
use super::slot::{Slot, State};
use super::table::{Key, Table, lock};
use crate::algorithm::{Assessment, Cell, Log, LogAssessment, Mode, Verdict};
use crate::limit::FracMicros;
use crate::rules::Band;
use crate::time::Timestamp;

/// What was found out about a key, to be written or not.
#[derive(Clone, Copy, Debug)]
pub(super) enum Assessed {
    Cell(Assessment),
    Log(LogAssessment),
}

impl Assessed {
    pub(super) fn verdict(&self) -> &Verdict {
        match self {
            Self::Cell(assessment) => &assessment.verdict,
            Self::Log(assessment) => &assessment.verdict,
        }
    }
}

/// Everything that guards the keys of one request, locked.
pub(super) struct Held<'t, 'k> {
    pub(super) table: &'t Table,
    pub(super) keys: &'k [Key],
    lines: SmallVec<[LineGuard<'t>; 4]>,
    /// Which of the lines is each key's own.
    homes: SmallVec<[u16; 8]>,
    overflows: SmallVec<[(u32, MutexGuard<'t, Overflow>); 1]>,
    /// Shards in which a key found no line, and which could have more of them.
    crowded: SmallVec<[(u32, Timestamp); 1]>,
}

/// Where a key belongs.
#[derive(Clone, Copy)]
struct Place<'t> {
    shard: u32,
    index: usize,
    line: &'t Line,
}

impl Place<'_> {
    fn order(&self) -> (u32, usize) {
        (self.shard, self.index)
    }
}

impl<'t, 'k> Held<'t, 'k> {
    /// Locks what guards these keys. They are spoken of by their index.
    pub(super) fn new(table: &'t Table, keys: &'k [Key]) -> Self {
        loop {
            if let Some(held) = Self::try_new(table, keys) {
                return held;
            }
        }
    }

    /// `None` if a shard has just grown.
    fn try_new(table: &'t Table, keys: &'k [Key]) -> Option<Self> {
        let mut held = Self {
            table,
            keys,
            lines: SmallVec::new(),
            homes: SmallVec::new(),
            overflows: SmallVec::new(),
            crowded: SmallVec::new(),
        };
        held.lock_lines()?;
        held.lock_overflows();
        Some(held)
    }

    fn lock_lines(&mut self) -> Option<()> {
        let mut places: SmallVec<[Place<'t>; 4]> = SmallVec::new();
        for key in self.keys {
            let lines = self.table.shards[key.shard as usize].lines();
            let index = Shard::line_of(key.print, lines);
            places.push(Place {
                shard: key.shard,
                index,
                line: &lines[index],
            });
        }
        let mut in_order = places.clone();
        in_order.sort_unstable_by_key(Place::order);
        in_order.dedup_by_key(|place| place.order());
        for place in &in_order {
            let guard = place.line.lock();
            // If the shard has grown meanwhile, the key belongs elsewhere now.
            if guard.is_retired() {
                return None;
            }
            self.lines.push(guard);
        }
        for place in &places {
            let mut in_order = in_order.iter();
            let home = in_order.position(|other| other.order() == place.order());
            self.homes.push(home.unwrap_or(0) as u16);
        }
        Some(())
    }

    /// Those that may hold a key, or may have to take one.
    fn lock_overflows(&mut self) {
        let mut wanted: SmallVec<[u32; 4]> = SmallVec::new();
        for (at, key) in self.keys.iter().enumerate() {
            let line = self.line(at);
            let may_be_elsewhere = || {
                line.find(key.print).is_none()
                    && (line.is_spilled() || line.find_empty().is_none() || self.has_company(key))
            };
            if key.is_log || may_be_elsewhere() {
                wanted.push(key.shard);
            }
        }
        if wanted.is_empty() {
            return;
        }
        wanted.sort_unstable();
        wanted.dedup();
        for shard in wanted {
            let overflow = lock(&self.table.shards[shard as usize].overflow);
            self.overflows.push((shard, overflow));
        }
    }

    /// Whether another key of the request may take the last room in the line.
    fn has_company(&self, key: &Key) -> bool {
        let mut others = self.keys.iter().filter(|other| *other != key);
        others.any(|other| other.shard == key.shard)
    }

    /// Judges a key as it stands.
    pub(super) fn assess(
        &mut self,
        at: usize,
        band: &Band,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> Assessed {
        if self.keys[at].is_log {
            let log = self.log(at).map(|log| &*log);
            return Assessed::Log(Log::assess(band.limit(), log, now, cost, mode));
        }
        let cell = self.cell(at, band);
        Assessed::Cell(Cell::assess(band.limit(), cell, now, cost, mode))
    }

    /// Writes what must be written though nothing is charged.
    pub(super) fn correct(&mut self, at: usize, band: &Band, assessed: &Assessed) {
        let key = self.keys[at];
        match assessed {
            Assessed::Cell(assessment) => {
                if let Some(cell) = &assessment.corrected {
                    self.replace(at, key.slot(band, cell));
                }
            }
            Assessed::Log(assessment) => {
                if let Some(log) = self.log(at) {
                    log.correct(assessment);
                    let slot = key.slot_of_log(band, log);
                    self.replace(at, slot);
                }
            }
        }
    }

    /// Writes the charge of an assessment that passed.
    pub(super) fn charge(&mut self, at: usize, band: &Band, now: Timestamp, assessed: &Assessed) {
        let key = self.keys[at];
        match assessed {
            Assessed::Cell(assessment) => {
                if let Some(cell) = assessment.to_write() {
                    let slot = key.slot(band, cell);
                    if !self.replace(at, slot) {
                        self.insert(at, slot, now);
                    }
                }
            }
            Assessed::Log(assessment) if assessment.charges => {
                self.charge_log(at, band, now, assessment);
            }
            Assessed::Log(_) => self.correct(at, band, assessed),
        }
    }

    fn charge_log(&mut self, at: usize, band: &Band, now: Timestamp, assessment: &LogAssessment) {
        let (key, table) = (self.keys[at], self.table);
        let rule = key.rule.get();
        let is_known = self.log(at).is_some();
        let overflow = self.held_overflow(key.shard);
        let forgets = table.retention == Retention::UntilFull;
        let log = if is_known {
            overflow.log(key.print)
        } else {
            let is_spent = |log: &Log| forgets && log.is_spent(now);
            Some(overflow.new_log(key.print, rule, &table.events, is_spent))
        };
        let log = log.expect("the log is known or was made");
        let before = log.events();
        log.correct(assessment);
        log.charge(band.limit(), assessment);
        recount(&table.events, rule, before, log.events());
        let is_crowded = log.events() > Log::MOST_COARSE_EVENTS && !table.has_room_for_events(rule);
        if is_crowded {
            let before = log.events();
            log.coarsen();
            recount(&table.events, rule, before, log.events());
        }
        let slot = key.slot_of_log(band, log);
        if is_crowded {
            self.sweep_logs(key.shard, now);
        }
        if !self.replace(at, slot) {
            self.insert(at, slot, now);
        }
    }

    /// Deletes the spent logs of one shard, the next in turn, if that has not
    /// just been done for another.
    fn sweep_logs(&mut self, own: u32, now: Timestamp) {
        let table = self.table;
        let Some(shard) = table.next_to_sweep(now) else {
            return;
        };
        if shard == own {
            let overflow = self.held_overflow(own);
            overflow.retain_logs(&table.events, |_, log| !log.is_spent(now));
        } else if let Ok(mut overflow) = table.shards[shard as usize].overflow.try_lock() {
            overflow.retain_logs(&table.events, |_, log| !log.is_spent(now));
        }
    }

    /// Gives units back.
    pub(super) fn refund(&mut self, at: usize, band: &Band, now: Timestamp, units: u64) {
        self.give_back(
            at,
            band,
            |log| log.refund(band.limit(), now, units),
            |cell| Cell::refund(band.limit(), cell, now, units),
        );
    }

    /// Takes a charge back that went to `mark`.
    pub(super) fn cancel(
        &mut self,
        at: usize,
        band: &Band,
        now: Timestamp,
        units: u64,
        mark: FracMicros,
    ) {
        self.give_back(
            at,
            band,
            |log| log.cancel(mark.whole, units),
            |cell| Cell::cancel(band.limit(), cell, now, units, mark),
        );
    }

    fn give_back(
        &mut self,
        at: usize,
        band: &Band,
        of_log: impl FnOnce(&mut Log),
        of_cell: impl FnOnce(Cell) -> Option<Cell>,
    ) {
        let key = self.keys[at];
        if key.is_log {
            let table = self.table;
            let Some(log) = self.log(at) else { return };
            let before = log.events();
            of_log(log);
            recount(&table.events, key.rule.get(), before, log.events());
            if log.units() == 0 {
                self.remove(at);
            } else {
                let slot = key.slot_of_log(band, log);
                self.replace(at, slot);
            }
            return;
        }
        let Some(cell) = self.cell(at, band) else {
            return;
        };
        match of_cell(cell) {
            Some(cell) => {
                self.replace(at, key.slot(band, &cell));
            }
            None => {
                self.remove(at);
            }
        }
    }

    /// Forgets a key; says whether it was there.
    pub(super) fn remove(&mut self, at: usize) -> bool {
        let key = self.keys[at];
        let in_line = self.line(at).find(key.print);
        if let Some(slot) = in_line {
            self.line_mut(at).clear(slot);
        }
        let table = self.table;
        let overflow = self.overflow(key.shard);
        let in_overflow =
            overflow.is_some_and(|overflow| overflow.remove(key.print, &table.events));
        let gone = in_line.is_some() || in_overflow;
        table.forget(key.rule.get(), usize::from(gone));
        gone
    }

    fn cell(&mut self, at: usize, band: &Band) -> Option<Cell> {
        self.state(at)?.cell(band.imprint())
    }

    fn state(&mut self, at: usize) -> Option<State> {
        let key = &self.keys[at];
        let line = self.line(at);
        match line.find(key.print) {
            Some(slot) => Some(line.state(slot)),
            None => self.overflow(key.shard)?.get(key.print),
        }
    }

    /// Writes the state of a key that is there; says whether it is.
    fn replace(&mut self, at: usize, slot: Slot) -> bool {
        let key = &self.keys[at];
        let print = key.print;
        let line = self.line_mut(at);
        if let Some(index) = line.find(print) {
            line.set_state(index, slot.state);
            return true;
        }
        let overflow = self.overflow(key.shard);
        match overflow.filter(|overflow| overflow.get(print).is_some()) {
            Some(overflow) => {
                overflow.set(slot);
                true
            }
            None => false,
        }
    }

    /// Adds a key that is not there.
    fn insert(&mut self, at: usize, slot: Slot, now: Timestamp) {
        let table = self.table;
        let rule = self.keys[at].rule.get();
        let line = self.line_mut(at);
        let empty = line.find_empty();
        if let Some(index) = empty
            && table.try_reserve()
        {
            table.keys.add(rule, 1);
            line.set(index, slot);
            return;
        }
        // What is full again means nothing, but costs nothing either while
        // there is room, and is found at once if it comes back.
        let spent = line
            .slots()
            .find(|(_, slot)| table.is_spent(slot.state, now));
        if let Some((index, spent)) = spent {
            let replaced = spent.state.rule();
            if replaced != rule {
                table.keys.add(rule, 1);
                table.keys.subtract(replaced, 1);
            }
            line.set(index, slot);
            return;
        }
        table.keys.add(rule, 1);
        if empty.is_some() || !table.try_reserve() {
            if !self.evict(at, now) {
                // Full, and every key that may go is held by another request:
                // the one case in which the table holds a key more. A charge is
                // never dropped.
                table.keys.reserve(1);
            } else if table.is_over() && self.evict(at, now) {
                table.keys.release(1);
            }
        }
        let line = self.line_mut(at);
        if let Some(index) = line.find_empty() {
            line.set(index, slot);
            return;
        }
        line.spill();
        let shard = self.keys[at].shard;
        let overflow = self.held_overflow(shard);
        if overflow.len().is_power_of_two() {
            overflow.retain(|state| !table.forget_spent(state, now));
        }
        overflow.set(slot);
        if table.shards[shard as usize].is_crowded(overflow.len(), &table.sizes) {
            self.crowded.push((shard, now));
        }
    }

    pub(super) fn line(&self, at: usize) -> &LineGuard<'t> {
        &self.lines[usize::from(self.homes[at])]
    }

    pub(super) fn line_mut(&mut self, at: usize) -> &mut LineGuard<'t> {
        &mut self.lines[usize::from(self.homes[at])]
    }

    pub(super) fn overflow(&mut self, shard: u32) -> Option<&mut Overflow> {
        let mut overflows = self.overflows.iter_mut();
        let found = overflows.find(|(held, _)| *held == shard);
        found.map(|(_, overflow)| &mut **overflow)
    }

    pub(super) fn held_overflow(&mut self, shard: u32) -> &mut Overflow {
        let overflow = self.overflow(shard);
        overflow.expect("every key that may need an overflow has it locked")
    }

    /// The log of a key, if its stand-in says that there is one.
    fn log(&mut self, at: usize) -> Option<&mut Log> {
        self.state(at).filter(|state| state.is_log())?;
        let key = &self.keys[at];
        self.held_overflow(key.shard).log(key.print)
    }
}

impl Drop for Held<'_, '_> {
    /// Lets go of everything, then gives crowded shards more lines.
    fn drop(&mut self) {
        if self.crowded.is_empty() {
            return;
        }
        self.lines.clear();
        self.overflows.clear();
        for (shard, now) in std::mem::take(&mut self.crowded) {
            let table = self.table;
            let shard = &table.shards[shard as usize];
            shard.grow(&table.sizes, |state| !table.forget_spent(state, now));
        }
    }
}
