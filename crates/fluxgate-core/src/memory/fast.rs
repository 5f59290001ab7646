//! The fast path: decisions on keys in their lines, read without a lock.
//!
//! Only lines that must be written are locked, and only if they have not changed since they
//! were read; nothing waits here. If another thread interferes, the request takes the slow
//! path ([`super::locked`]), which always succeeds.

use smallvec::SmallVec;

use super::entry::{Key, LimitBits, State};
use super::line::{Line, LineGuard, Version};
use super::locked::LockedKeys;
use super::shard::Shard;
use super::table::Table;
use crate::algorithm::{Bucket, Cell, Counts, Mode, Verdict};
use crate::band::Band;
use crate::store::{Check, Counters as _, Verdicts};
use crate::time::Timestamp;

/// The most checks that take the fast path.
const MAX_CHECKS: usize = 4;

thread_local! {
    /// Predicts whether the next request is denied.
    static LAST_WAS_DENIED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A key as it was read, and the state to write for it.
struct Snapshot<'t> {
    line: &'t Line,
    entry: usize,
    version: Version,
    write: Option<State>,
}

impl<'t> Snapshot<'t> {
    /// Assesses a request on a key and passes the result to `then`. Returns `None` if the key
    /// is not in its line, or another thread is writing there.
    #[inline(always)]
    fn assess<R>(
        table: &'t Table,
        key: &Key,
        request: &BandRequest<'_>,
        then: impl FnOnce(Verdict, Self) -> R,
    ) -> Option<R> {
        let line = table.line(key);
        let read = line.read(key.fingerprint)?;
        if read.version.is_retired() {
            return None;
        }
        let (entry, state) = read.found?;
        let version = read.version;
        Some(request.assess(key, state, |verdict, write| {
            let snapshot = Self {
                line,
                entry,
                version,
                write,
            };
            then(verdict, snapshot)
        }))
    }

    /// Locks the line, unless it has changed. The entry is still the key's then.
    fn lock(&self) -> Option<LineGuard<'t>> {
        self.line.lock_unchanged(self.version)
    }

    fn write(&self, line: &mut LineGuard<'_>) {
        if let Some(state) = self.write {
            line.set_state(self.entry, state);
        }
    }
}

/// A request for units of one band.
struct BandRequest<'r> {
    band: &'r Band,
    now: Timestamp,
    cost: u64,
    mode: Mode,
}

impl BandRequest<'_> {
    /// Assesses the request, and passes to `then` the verdict and the state to write if it is
    /// charged.
    ///
    /// `then` is compiled once for buckets and once for windows, so neither has to convert
    /// its numbers into a common form.
    #[inline(always)]
    fn assess<R>(
        &self,
        key: &Key,
        state: State,
        then: impl FnOnce(Verdict, Option<State>) -> R,
    ) -> R {
        let limit = self.band.limit();
        let bits = LimitBits::of(limit);
        let is_known = state.is_of(bits);
        let takes = self.mode.takes();
        if limit.algorithm().is_bucket() {
            let stored = is_known.then(|| state.bucket());
            let (verdict, corrected, charged) =
                Bucket::assess(limit, stored, self.now, self.cost, self.mode);
            let write = charged.filter(|_| takes).or(corrected);
            let write = write.map(|write| State::of_bucket(key, bits, write));
            then(verdict, write)
        } else {
            let stored = is_known.then(|| state.counts());
            let (verdict, corrected, charged) =
                Counts::assess(limit, stored, self.now, self.cost, self.mode);
            let write = charged.filter(|_| takes).or(corrected);
            let write = write.map(|write| {
                let bits = LimitBits::of_counts(limit, write.start);
                State::of_counts(key, bits, write)
            });
            then(verdict, write)
        }
    }
}

impl Table {
    /// Decides on one key, and charges it if it passes.
    #[inline]
    pub(super) fn take(&self, key: &Key, band: &Band, now: Timestamp, cost: u64) -> Verdict {
        match self.take_in_line(key, band, now, cost) {
            Some(verdict) => verdict,
            None => self.take_elsewhere(key, band, now, cost),
        }
    }

    /// Separate, so that the fast path has few registers to save.
    #[cold]
    #[inline(never)]
    fn take_elsewhere(&self, key: &Key, band: &Band, now: Timestamp, cost: u64) -> Verdict {
        if let Some(verdict) = self.take_in_overflow(key, band, now, cost) {
            return verdict;
        }
        let mut locked = LockedKeys::new(self, std::slice::from_ref(key), now);
        let assessment = locked.assess(0, band, cost, Mode::Take);
        if assessment.verdict().passes() {
            locked.charge(0, band, &assessment);
        } else {
            locked.correct(0, band, &assessment);
        }
        *assessment.verdict()
    }

    /// Decides on one key in its line, and charges it if it passes.
    ///
    /// A line that is first read and then locked is fetched twice if another core had it
    /// last. So if the last request of this thread was charged, the line is locked at once,
    /// and if it was denied, the line is only read.
    #[inline(always)]
    fn take_in_line(&self, key: &Key, band: &Band, now: Timestamp, cost: u64) -> Option<Verdict> {
        if key.is_list {
            return None;
        }
        let request = BandRequest {
            band,
            now,
            cost,
            mode: Mode::Take,
        };
        if LAST_WAS_DENIED.get() {
            Snapshot::assess(self, key, &request, |verdict, snapshot| {
                if snapshot.write.is_some() {
                    snapshot.write(&mut snapshot.lock()?);
                }
                LAST_WAS_DENIED.set(!verdict.passes());
                Some(verdict)
            })?
        } else {
            let mut line = self.line(key).try_lock()?;
            if line.is_retired() {
                return None;
            }
            let entry = line.find(key.fingerprint)?;
            request.assess(key, line.state(entry), |verdict, write| {
                if let Some(state) = write {
                    line.set_state(entry, state);
                }
                LAST_WAS_DENIED.set(!verdict.passes());
                Some(verdict)
            })
        }
    }

    /// Decides on one key in its shard's overflow, and charges it if it passes. The overflow
    /// lock is enough: a key is in one place only, and moves only under both locks.
    fn take_in_overflow(
        &self,
        key: &Key,
        band: &Band,
        now: Timestamp,
        cost: u64,
    ) -> Option<Verdict> {
        if key.is_list {
            return None;
        }
        let mut overflow = self.shards[key.shard as usize].overflow.lock();
        let state = overflow.get(key.fingerprint)?;
        let cell = state.cell(LimitBits::of(band.limit()));
        let assessment = Cell::assess(band.limit(), cell, now, cost, Mode::Take);
        if let Some(cell) = assessment.to_write() {
            overflow.set(key.entry(band, cell));
        }
        Some(assessment.verdict)
    }

    /// Decides checks that are charged together or not at all. If it returns `None`, the
    /// verdicts that it has added are invalid.
    pub(super) fn decide_in_lines(
        &self,
        keys: &[Key],
        checks: &[Check<'_>],
        now: Timestamp,
        mode: Mode,
        verdicts: &mut Verdicts,
    ) -> Option<()> {
        if keys.len() > MAX_CHECKS {
            return None;
        }
        let mut snapshots: SmallVec<[Snapshot<'_>; MAX_CHECKS]> = SmallVec::new();
        let mut passes = true;
        for (index, (key, check)) in keys.iter().zip(checks).enumerate() {
            if key.is_list || keys[..index].contains(key) {
                return None;
            }
            let request = BandRequest {
                band: check.band,
                now,
                cost: check.cost,
                mode,
            };
            Snapshot::assess(self, key, &request, |verdict, snapshot| {
                passes &= verdict.passes();
                verdicts.push(verdict);
                snapshots.push(snapshot);
            })?;
        }
        if !passes && mode.reports_charge() {
            // The bands that pass are not charged after all: report them without it.
            for (index, snapshot) in snapshots.iter_mut().enumerate() {
                if verdicts[index].passes() {
                    let Check { band, cost, .. } = checks[index];
                    let request = BandRequest {
                        band,
                        now,
                        cost,
                        mode: Mode::Peek,
                    };
                    let key = &keys[index];
                    let peeked =
                        Snapshot::assess(self, key, &request, |verdict, read| (verdict, read));
                    (verdicts[index], *snapshot) = peeked?;
                }
            }
        }
        if snapshots.iter().any(|snapshot| snapshot.write.is_some()) {
            // Locks all lines, so that the states that were read are still current.
            let mut lines: SmallVec<[LineGuard<'_>; MAX_CHECKS]> = SmallVec::new();
            for snapshot in &snapshots {
                lines.push(snapshot.lock()?);
            }
            for (snapshot, line) in snapshots.iter().zip(&mut lines) {
                snapshot.write(line);
            }
        } else if snapshots.len() > 1 {
            // The states were read one after the other. They were valid at one time only if
            // none has changed.
            let is_current = |snapshot: &Snapshot<'_>| snapshot.line.is_still(snapshot.version);
            if !snapshots.iter().all(is_current) {
                return None;
            }
        }
        Some(())
    }

    /// Returns the line that a key belongs to.
    #[inline]
    fn line(&self, key: &Key) -> &Line {
        let lines = self.shards[key.shard as usize].lines();
        &lines[Shard::line_of(key.fingerprint, lines)]
    }
}
