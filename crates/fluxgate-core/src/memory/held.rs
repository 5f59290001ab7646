//! The locks that one request holds, and what it does under them.
//!
//! The order is the same for everybody: lines by shard and place, then
//! overflows by shard, then logs by shard. Lines of other keys, looked at for
//! something to evict, are taken only if nobody has them.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::line::LineGuard;
use super::logs::LogShard;
use super::shard::{Overflow, Shard};
use super::slot::{Print, Slot};
use super::table::{Key, Table, lock};
use crate::algorithm::{Assessment, Cell, Log, LogAssessment, Mode, Verdict};
use crate::rules::Band;
use crate::time::Timestamp;

/// How many lines besides its own a key looks through for one to evict.
const EVICTION_LINES: usize = 16;

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
pub(super) struct Held<'t> {
    table: &'t Table,
    lines: SmallVec<[HeldLine<'t>; 4]>,
    overflows: SmallVec<[(u32, MutexGuard<'t, Overflow>); 1]>,
    logs: SmallVec<[(u32, MutexGuard<'t, LogShard>); 1]>,
    /// Shards in which a key found no line, and which could have more of them.
    crowded: SmallVec<[(u32, Timestamp); 1]>,
}

struct HeldLine<'t> {
    shard: u32,
    index: usize,
    guard: LineGuard<'t>,
}

impl<'t> Held<'t> {
    /// Locks what guards these keys.
    pub(super) fn new(table: &'t Table, keys: &[Key]) -> Self {
        loop {
            if let Some(held) = Self::try_new(table, keys) {
                return held;
            }
        }
    }

    /// `None` if a shard has just grown.
    fn try_new(table: &'t Table, keys: &[Key]) -> Option<Self> {
        let mut held = Self {
            table,
            lines: SmallVec::new(),
            overflows: SmallVec::new(),
            logs: SmallVec::new(),
            crowded: SmallVec::new(),
        };
        held.lock_lines(keys)?;
        held.lock_overflows(keys);
        held.lock_logs(keys);
        Some(held)
    }

    fn lock_lines(&mut self, keys: &[Key]) -> Option<()> {
        let table = self.table;
        let mut wanted: SmallVec<[(u32, usize); 8]> = SmallVec::new();
        for key in keys.iter().filter(|key| !key.is_log) {
            let (_, _, index) = table.line_of(key);
            wanted.push((key.shard, index));
        }
        if wanted.len() > 1 {
            wanted.sort_unstable();
            wanted.dedup();
        }
        for (shard, index) in wanted {
            // The shard may have grown since; then the line is retired.
            let line = table.shards[shard as usize].lines().get(index)?;
            let guard = line.lock();
            if guard.is_retired() {
                return None;
            }
            self.lines.push(HeldLine {
                shard,
                index,
                guard,
            });
        }
        // With a line of each shard locked and not retired, none can grow now;
        // but one may have grown between the look and the lock.
        let in_place = keys.iter().filter(|key| !key.is_log).all(|key| {
            let (_, _, index) = table.line_of(key);
            let mut lines = self.lines.iter();
            lines.any(|line| (line.shard, line.index) == (key.shard, index))
        });
        in_place.then_some(())
    }

    /// Those that may hold a key, or may have to take one.
    fn lock_overflows(&mut self, keys: &[Key]) {
        let mut wanted: SmallVec<[u32; 4]> = SmallVec::new();
        for key in keys.iter().filter(|key| !key.is_log) {
            let line = &self.line(key).guard;
            if line.find(key.print()).is_none()
                && (line.is_spilled() || line.find_empty().is_none() || wanted_room(keys, key))
            {
                wanted.push(key.shard);
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        for shard in wanted {
            let overflow = lock(&self.table.shards[shard as usize].overflow);
            self.overflows.push((shard, overflow));
        }
    }

    fn lock_logs(&mut self, keys: &[Key]) {
        let logs = keys.iter().filter(|key| key.is_log);
        let mut wanted: SmallVec<[u32; 4]> = logs.map(|key| key.shard).collect();
        wanted.sort_unstable();
        wanted.dedup();
        for shard in wanted {
            let logs = lock(&self.table.logs[shard as usize]);
            self.logs.push((shard, logs));
        }
    }

    /// Judges a key as it stands.
    pub(super) fn assess(
        &mut self,
        key: &Key,
        band: &Band,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> Assessed {
        if key.is_log {
            let log = self.log(key).get(key.fingerprint);
            return Assessed::Log(Log::assess(band.limit(), log, now, cost, mode));
        }
        let cell = self.cell(key, band);
        Assessed::Cell(Cell::assess(band.limit(), cell, now, cost, mode))
    }

    /// Writes what must be written though nothing is charged.
    pub(super) fn correct(&mut self, key: &Key, band: &Band, assessed: &Assessed) {
        match assessed {
            Assessed::Cell(assessment) => {
                if let Some(cell) = &assessment.corrected {
                    self.replace(key, key.slot(band, cell));
                }
            }
            Assessed::Log(assessment) => {
                if let Some(log) = self.log(key).get_mut(key.fingerprint) {
                    log.correct(assessment);
                }
            }
        }
    }

    /// Writes the charge of an assessment that passed.
    pub(super) fn charge(&mut self, key: &Key, band: &Band, now: Timestamp, assessed: &Assessed) {
        match assessed {
            Assessed::Cell(assessment) => {
                if let Some(cell) = assessment.to_write() {
                    let slot = key.slot(band, cell);
                    if !self.replace(key, slot) {
                        self.insert(key, slot, now);
                    }
                }
            }
            Assessed::Log(assessment) => {
                let table = self.table;
                self.log(key).charge(table, key, band, now, assessment);
            }
        }
    }

    /// Gives units back.
    pub(super) fn refund(&mut self, key: &Key, band: &Band, now: Timestamp, units: u64) {
        if key.is_log {
            if let Some(log) = self.log(key).get_mut(key.fingerprint) {
                log.refund(band.limit(), now, units);
            }
            return;
        }
        let Some(cell) = self.cell(key, band) else { return };
        match Cell::refund(band.limit(), cell, now, units) {
            Some(cell) => {
                self.replace(key, key.slot(band, &cell));
            }
            None => {
                self.remove(key);
            }
        }
    }

    /// Forgets a key; says whether it was there.
    pub(super) fn remove(&mut self, key: &Key) -> bool {
        let gone = if key.is_log {
            self.log(key).remove(key.fingerprint)
        } else {
            let line = self.line_mut(key);
            match line.find(key.print()) {
                Some(slot) => {
                    line.clear(slot);
                    true
                }
                None => {
                    let overflow = self.overflow(key.shard);
                    overflow.is_some_and(|overflow| overflow.remove(key.print()))
                }
            }
        };
        self.table.forget(usize::from(gone));
        gone
    }

    fn cell(&mut self, key: &Key, band: &Band) -> Option<Cell> {
        let print = key.print();
        let line = &self.line(key).guard;
        let state = match line.find(print) {
            Some(slot) => Some(line.state(slot)),
            None => self.overflow(key.shard)?.get(print),
        };
        state?.cell(band.imprint())
    }

    /// Writes the state of a key that is there; says whether it is.
    fn replace(&mut self, key: &Key, slot: Slot) -> bool {
        let line = self.line_mut(key);
        if let Some(index) = line.find(key.print()) {
            line.set_state(index, slot.state);
            return true;
        }
        match self.overflow(key.shard) {
            Some(overflow) if overflow.get(key.print()).is_some() => {
                overflow.set(slot);
                true
            }
            _ => false,
        }
    }

    /// Adds a key that is not there.
    fn insert(&mut self, key: &Key, slot: Slot, now: Timestamp) {
        let table = self.table;
        let line = self.line_mut(key);
        let empty = line.find_empty();
        if let Some(index) = empty
            && table.try_count()
        {
            line.set(index, slot);
            return;
        }
        // What is full again means nothing, but costs nothing either while
        // there is room, and is found at once if it comes back.
        let spent = line.slots().find(|(_, slot)| table.is_spent(slot.state, now));
        if let Some((index, _)) = spent {
            line.set(index, slot);
            return;
        }
        if (empty.is_some() || !table.try_count()) && !self.evict(key, now) {
            // Full, and nothing at hand to forget: the one case in which the
            // table holds a key more. A charge is never dropped.
            table.count();
        }
        let line = self.line_mut(key);
        if let Some(index) = line.find_empty() {
            line.set(index, slot);
            return;
        }
        line.spill();
        let overflow = self.overflow(key.shard);
        let overflow = overflow.expect("every key that may need an overflow has it locked");
        if overflow.len().is_power_of_two() {
            table.forget(overflow.retain(|state| !table.is_spent(state, now)));
        }
        overflow.set(slot);
        let shard = &table.shards[key.shard as usize];
        if shard.is_crowded(overflow.len(), &table.sizes) {
            self.crowded.push((key.shard, now));
        }
    }

    /// Forgets the key that costs least among the ones at hand: in the line of
    /// `key`, in its shard's overflow and in some lines beside it. Says whether
    /// there was one.
    fn evict(&mut self, key: &Key, now: Timestamp) -> bool {
        let table = self.table;
        let shard = &table.shards[key.shard as usize];
        let lines = shard.lines();
        let own = Shard::line_of(key.print(), lines);

        let in_line = self.line(key).guard.slots();
        let mut cheapest = in_line
            .map(|(index, slot)| (slot.state.loss(now), Victim::InLine(index)))
            .min_by_key(|(loss, _)| *loss);
        let overflow = self.overflow(key.shard).and_then(|overflow| overflow.cheapest(now));
        if let Some((loss, print)) = overflow
            && cheapest.as_ref().is_none_or(|(least, _)| loss < *least)
        {
            cheapest = Some((loss, Victim::InOverflow(print)));
        }
        for step in 1..EVICTION_LINES.min(lines.len()) {
            // A line that this or another request holds is passed over.
            let Some(line) = lines[(own + step) % lines.len()].try_lock() else {
                continue;
            };
            let here = line.slots().map(|(index, slot)| (slot.state.loss(now), index));
            if let Some((loss, index)) = here.min_by_key(|(loss, _)| *loss)
                && cheapest.as_ref().is_none_or(|(least, _)| loss < *least)
            {
                cheapest = Some((loss, Victim::Beside(line, index)));
            }
        }
        match cheapest {
            None => return false,
            Some((_, Victim::InLine(index))) => self.line_mut(key).clear(index),
            Some((_, Victim::Beside(mut line, index))) => line.clear(index),
            Some((_, Victim::InOverflow(print))) => {
                if let Some(overflow) = self.overflow(key.shard) {
                    overflow.remove(print);
                }
            }
        }
        true
    }

    fn line(&self, key: &Key) -> &HeldLine<'t> {
        let (_, _, index) = self.table.line_of(key);
        let mut lines = self.lines.iter();
        let found = lines.find(|line| line.shard == key.shard && line.index == index);
        found.expect("every key's line is held")
    }

    fn line_mut(&mut self, key: &Key) -> &mut LineGuard<'t> {
        let (_, _, index) = self.table.line_of(key);
        let mut lines = self.lines.iter_mut();
        let found = lines.find(|line| line.shard == key.shard && line.index == index);
        &mut found.expect("every key's line is held").guard
    }

    fn overflow(&mut self, shard: u32) -> Option<&mut Overflow> {
        let mut overflows = self.overflows.iter_mut();
        let found = overflows.find(|(held, _)| *held == shard);
        found.map(|(_, overflow)| &mut **overflow)
    }

    fn log(&mut self, key: &Key) -> &mut LogShard {
        let mut logs = self.logs.iter_mut();
        let found = logs.find(|(shard, _)| *shard == key.shard);
        &mut found.expect("every key's log is held").1
    }
}

impl Drop for Held<'_> {
    /// Lets go of everything, then gives crowded shards more lines.
    fn drop(&mut self) {
        if self.crowded.is_empty() {
            return;
        }
        self.lines.clear();
        self.overflows.clear();
        self.logs.clear();
        for (shard, now) in std::mem::take(&mut self.crowded) {
            let table = self.table;
            let shard = &table.shards[shard as usize];
            table.forget(shard.grow(&table.sizes, |state| !table.is_spent(state, now)));
        }
    }
}

/// Whether other keys of the request may take the last room in this key's line.
fn wanted_room(keys: &[Key], key: &Key) -> bool {
    keys.iter().any(|other| other != key && other.shard == key.shard && !other.is_log)
}

/// A key that may be forgotten.
enum Victim<'t> {
    InLine(usize),
    Beside(LineGuard<'t>, usize),
    InOverflow(Print),
}
