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
use crate::algorithm::{Bucket, Cell, Counts, Mode, Verdict};
use crate::rules::Band;
use crate::store::{Check, Verdicts};
use crate::time::Timestamp;

/// How many checks go this way at most.
const MOST_CHECKS: usize = 4;

thread_local! {
    /// A guess at how the next request will fare.
    static LAST_WAS_REFUSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// What was read of a key, and what is to be written for it.
struct Look<'t> {
    line: &'t Line,
    slot: usize,
    version: Version,
    write: Option<State>,
}

impl<'t> Look<'t> {
    /// Judges a key as it stands, and hands over what that comes to. `None` if
    /// the key is not in its line, or somebody is writing there.
    #[inline(always)]
    fn judge<R>(
        table: &'t Table,
        key: &Key,
        ask: &Ask<'_>,
        then: impl FnOnce(Verdict, Self) -> R,
    ) -> Option<R> {
        let line = table.line(key);
        let glance = line.glance(key.print)?;
        if glance.version.is_retired() {
            return None;
        }
        let (slot, state) = glance.found?;
        let version = glance.version;
        Some(ask.judge(key, state, |verdict, write| {
            let look = Self {
                line,
                slot,
                version,
                write,
            };
            then(verdict, look)
        }))
    }

    /// Locks the line, unless it has changed; then the slot is still the key's.
    fn lock(&self) -> Option<LineGuard<'t>> {
        self.line.lock_unchanged(self.version)
    }

    fn write(&self, line: &mut LineGuard<'_>) {
        if let Some(state) = self.write {
            line.set_state(self.slot, state);
        }
    }
}

/// What is asked of a key.
struct Ask<'r> {
    band: &'r Band,
    now: Timestamp,
    cost: u64,
    mode: Mode,
}

impl Ask<'_> {
    /// Hands over the verdict, and what is to be written if the request is
    /// charged wherever it passes.
    ///
    /// What follows is compiled once for buckets and once for windows, so that
    /// neither has to move its numbers into a form that fits both.
    #[inline(always)]
    fn judge<R>(
        &self,
        key: &Key,
        state: State,
        then: impl FnOnce(Verdict, Option<State>) -> R,
    ) -> R {
        let (limit, imprint) = (self.band.limit(), self.band.imprint());
        let is_known = state.is_of(imprint);
        let takes = self.mode.takes();
        if limit.algorithm().is_bucket() {
            let stored = is_known.then(|| state.bucket());
            let (verdict, corrected, charged) =
                Bucket::assess(limit, stored, self.now, self.cost, self.mode);
            let write = charged.filter(|_| takes).or(corrected);
            let write = write.map(|write| State::of_bucket(key.print, key.rule, imprint, write));
            then(verdict, write)
        } else {
            let stored = is_known.then(|| state.counts());
            let (verdict, corrected, charged) =
                Counts::assess(limit, stored, self.now, self.cost, self.mode);
            let write = charged.filter(|_| takes).or(corrected);
            let write = write.map(|write| State::of_counts(key.print, key.rule, imprint, write));
            then(verdict, write)
        }
    }
}

impl Table {
    /// Judges one key and charges it if it passes.
    ///
    /// What is read first and then locked is fetched twice when another core
    /// had it last. So where the last request of this thread was charged, the
    /// line is locked at once, and where it was refused, it is only read.
    #[inline(always)]
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
        let ask = Ask {
            band,
            now,
            cost,
            mode: Mode::Take,
        };
        if LAST_WAS_REFUSED.get() {
            Look::judge(self, key, &ask, |verdict, look| {
                if look.write.is_some() {
                    look.write(&mut look.lock()?);
                }
                LAST_WAS_REFUSED.set(!verdict.passes());
                Some(verdict)
            })?
        } else {
            let mut line = self.line(key).try_lock()?;
            if line.is_retired() {
                return None;
            }
            let slot = line.find(key.print)?;
            ask.judge(key, line.state(slot), |verdict, write| {
                if let Some(state) = write {
                    line.set_state(slot, state);
                }
                LAST_WAS_REFUSED.set(!verdict.passes());
                Some(verdict)
            })
        }
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

    /// Decides checks that are charged together or not at all. What it has
    /// added to `verdicts` means nothing if it gives up.
    pub(super) fn decide_in_lines(
        &self,
        keys: &[Key],
        checks: &[Check<'_>],
        now: Timestamp,
        mode: Mode,
        verdicts: &mut Verdicts,
    ) -> Option<()> {
        if keys.len() > MOST_CHECKS {
            return None;
        }
        let mut looks: SmallVec<[Look<'_>; MOST_CHECKS]> = SmallVec::new();
        let mut passes = true;
        for (index, (key, check)) in keys.iter().zip(checks).enumerate() {
            if key.is_log || keys[..index].contains(key) {
                return None;
            }
            let ask = Ask {
                band: check.band,
                now,
                cost: check.cost,
                mode,
            };
            Look::judge(self, key, &ask, |verdict, look| {
                passes &= verdict.passes();
                verdicts.push(verdict);
                looks.push(look);
            })?;
        }
        if !passes && mode.takes() {
            // Those that pass are not charged after all: tell what is there
            // without it.
            for (index, look) in looks.iter_mut().enumerate() {
                if verdicts[index].passes() {
                    let Check { band, cost, .. } = checks[index];
                    let ask = Ask {
                        band,
                        now,
                        cost,
                        mode: Mode::Peek,
                    };
                    let again =
                        Look::judge(self, &keys[index], &ask, |verdict, look| (verdict, look));
                    (verdicts[index], *look) = again?;
                }
            }
        }
        if looks.iter().any(|look| look.write.is_some()) {
            // All of them, so that what was read still stands together.
            let mut lines: SmallVec<[LineGuard<'_>; MOST_CHECKS]> = SmallVec::new();
            for look in &looks {
                lines.push(look.lock()?);
            }
            for (look, line) in looks.iter().zip(&mut lines) {
                look.write(line);
            }
        } else if looks.len() > 1 {
            // What was read one after the other was there at one time.
            let still = |look: &Look<'_>| look.line.is_still(look.version);
            if !looks.iter().all(still) {
                return None;
            }
        }
        Some(())
    }

    /// Where a key belongs.
    #[inline]
    fn line(&self, key: &Key) -> &Line {
        let lines = self.shards[key.shard as usize].lines();
        &lines[Shard::line_of(key.print, lines)]
    }
}
