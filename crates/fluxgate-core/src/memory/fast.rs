//! The short way through: keys that are in their lines, decided on what was
//! read without a lock.
//!
//! Only what must be written is locked, and only if nothing has changed since
//! it was read; nobody waits here. Whoever is disturbed takes the long way
//! ([`super::held`]), which always gets through.

use smallvec::SmallVec;

use super::line::{Line, LineGuard, Version};
use super::shard::Shard;
use super::slot::State;
use super::table::{Key, Table, lock};
use crate::algorithm::{Assessment, Cell, Mode, Verdict};
use crate::rules::Band;
use crate::store::{Check, Verdicts};
use crate::time::Timestamp;

/// How many checks go this way at most.
const MOST_CHECKS: usize = 4;

thread_local! {
    /// A guess at how the next request will fare.
    static LAST_WAS_REFUSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// What was read of a key, and what it comes to.
struct Look<'t> {
    line: &'t Line,
    slot: usize,
    version: Version,
    assessment: Assessment,
}

impl<'t> Look<'t> {
    /// `None` if the key is not in its line, or somebody is writing there.
    #[inline]
    fn new(
        table: &'t Table,
        key: &Key,
        band: &Band,
        now: Timestamp,
        cost: u64,
        mode: Mode,
    ) -> Option<Self> {
        let print = key.print;
        let lines = table.shards[key.shard as usize].lines();
        let line = &lines[Shard::line_of(print, lines)];
        let glance = line.glance(print)?;
        if glance.version.is_retired() {
            return None;
        }
        let (slot, state) = glance.found?;
        let cell = state.cell(band.imprint());
        Some(Self {
            line,
            slot,
            version: glance.version,
            assessment: Cell::assess(band.limit(), cell, now, cost, mode),
        })
    }

    /// Locks the line, unless it has changed; then the slot is still the key's.
    fn lock(&self) -> Option<LineGuard<'t>> {
        self.line.lock_unchanged(self.version)
    }

    /// What is to be written, if the request is charged or not.
    fn to_write(&self, charges: bool) -> Option<&Cell> {
        if charges {
            self.assessment.to_write()
        } else {
            self.assessment.corrected.as_ref()
        }
    }

    fn write(&self, line: &mut LineGuard<'_>, key: &Key, band: &Band, cell: &Cell) {
        let state = State::new(key.print, key.rule, band.imprint(), cell);
        line.set_state(self.slot, state);
    }
}

impl Table {
    /// Judges one key and charges it if it passes.
    ///
    /// What is read first and then locked is fetched twice when another core
    /// had it last. So where the last request of this thread was charged, the
    /// line is locked at once, and where it was refused, it is only read.
    pub(super) fn take_in_line(
        &self,
        key: &Key,
        band: &Band,
        now: Timestamp,
        cost: u64,
    ) -> Option<Verdict> {
        if key.is_log {
            return None;
        }
        let verdict = if LAST_WAS_REFUSED.get() {
            let look = Look::new(self, key, band, now, cost, Mode::Take)?;
            if let Some(cell) = look.assessment.to_write() {
                look.write(&mut look.lock()?, key, band, cell);
            }
            look.assessment.verdict
        } else {
            let lines = self.shards[key.shard as usize].lines();
            let mut line = lines[Shard::line_of(key.print, lines)].try_lock()?;
            if line.is_retired() {
                return None;
            }
            let slot = line.find(key.print)?;
            let cell = line.state(slot).cell(band.imprint());
            let assessment = Cell::assess(band.limit(), cell, now, cost, Mode::Take);
            if let Some(cell) = assessment.to_write() {
                let state = State::new(key.print, key.rule, band.imprint(), cell);
                line.set_state(slot, state);
            }
            assessment.verdict
        };
        LAST_WAS_REFUSED.set(!verdict.passes);
        Some(verdict)
    }

    /// The same for a key that is in its shard's overflow. Whoever holds that
    /// needs no line: a key is in one place only, and leaves none unlocked.
    pub(super) fn take_in_overflow(
        &self,
        key: &Key,
        band: &Band,
        now: Timestamp,
        cost: u64,
    ) -> Option<Verdict> {
        if key.is_log {
            return None;
        }
        let mut overflow = lock(&self.shards[key.shard as usize].overflow);
        let cell = overflow.get(key.print)?.cell(band.imprint());
        let assessment = Cell::assess(band.limit(), cell, now, cost, Mode::Take);
        if let Some(cell) = assessment.to_write() {
            overflow.set(key.slot(band, cell));
        }
        Some(assessment.verdict)
    }

    /// Decides checks that are charged together or not at all.
    pub(super) fn decide_in_lines(
        &self,
        keys: &[Key],
        checks: &[Check<'_>],
        now: Timestamp,
        mode: Mode,
    ) -> Option<Verdicts> {
        if keys.len() > MOST_CHECKS {
            return None;
        }
        let mut looks: SmallVec<[Look<'_>; MOST_CHECKS]> = SmallVec::new();
        let mut passes = true;
        for (index, (key, check)) in keys.iter().zip(checks).enumerate() {
            if key.is_log || keys[..index].contains(key) {
                return None;
            }
            let look = Look::new(self, key, check.band, now, check.cost, mode)?;
            passes &= look.assessment.verdict.passes;
            looks.push(look);
        }
        let charges = passes && mode == Mode::Take;
        if looks.iter().any(|look| look.to_write(charges).is_some()) {
            // All of them, so that what was read still stands together.
            let mut lines: SmallVec<[LineGuard<'_>; MOST_CHECKS]> = SmallVec::new();
            for look in &looks {
                lines.push(look.lock()?);
            }
            for (index, look) in looks.iter().enumerate() {
                if let Some(cell) = look.to_write(charges) {
                    look.write(&mut lines[index], &keys[index], checks[index].band, cell);
                }
            }
        } else if keys.len() > 1 {
            // What was read one after the other was there at one time.
            let still = |look: &Look<'_>| look.line.is_still(look.version);
            if !looks.iter().all(still) {
                return None;
            }
        }
        let mut verdicts = Verdicts::new();
        for (look, (key, check)) in looks.iter().zip(keys.iter().zip(checks)) {
            let mut verdict = look.assessment.verdict;
            if !charges && mode == Mode::Take && verdict.passes {
                // Not charged after all: tell what is there without it.
                let look = Look::new(self, key, check.band, now, check.cost, Mode::Peek);
                verdict = look?.assessment.verdict;
            }
            verdicts.push(verdict);
        }
        Some(verdicts)
    }
}
