//! The script's answer to one request, and the verdicts that the core derives from it.
//!
//! The script has decided and written. The core decides again, from the state that the script
//! read, to report everything about the decision. If the two differ, the answer is an error.

use std::time::Duration;

use fluxgate_core::algorithm::{Cell, Grant, Overhang};
use fluxgate_core::limit::FracMicros;
use fluxgate_core::store::{Check, Checks, Group, Micros, Mode, Verdict, Verdicts};
use fluxgate_core::{Algorithm, Band, Limit, StoreError, Timestamp};
use smallvec::SmallVec;

use super::state::StoredState;
use crate::error::bad_response;

/// The script's answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The time of the decision, by the server's clock.
    pub(crate) now: Timestamp,
    pub(super) entries: SmallVec<[Entry; 4]>,
    /// Whether a request that has to wait got a permit; `None` if it does not have to wait, or
    /// requested no permit.
    pub(crate) permit: Option<bool>,
    /// Whether the request was not decided, because its calendar windows do not contain the
    /// time.
    pub(crate) is_outside_window: bool,
    /// The outcome of a settlement or a renewal. Boxed, because few requests have one.
    pub(super) hold: Option<Box<HoldOutcome>>,
    /// The grant, if it is a lease request.
    pub(super) grant: Option<Box<Grant>>,
    /// The answers to the lease requests that were sent with the request.
    pub(crate) lease_answers: Vec<Result<Answer, StoreError>>,
}

/// The script's answer to a settlement or a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldOutcome {
    /// There is no such hold.
    Gone,
    Renewed,
    /// The units that were charged in addition to each charge; `None` where nothing had been
    /// charged.
    Settled(Vec<Option<u32>>),
}

/// The script's answer to one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Whether it passed.
    pub(super) passes: bool,
    /// The state before the decision.
    pub(super) stored: StoredState,
}

/// A charge that can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UndoableCharge {
    /// The index of the check.
    pub(super) check: usize,
    /// The units charged to its counter.
    pub(super) cost: u64,
    /// Where the charge went: the start of the window, or the instant of the event. For a
    /// bucket, when it would have been full without the charge or, if it was full, when it was
    /// charged.
    pub(super) mark: FracMicros,
    /// The overhang of the bucket before the charge.
    pub(super) overhang: Overhang,
}

impl Answer {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            now,
            entries: SmallVec::new(),
            permit: None,
            is_outside_window: false,
            hold: None,
            grant: None,
            lease_answers: Vec::new(),
        }
    }

    /// Returns the outcome of a settlement or a renewal.
    pub(crate) fn into_hold_outcome(self) -> Result<HoldOutcome, StoreError> {
        self.hold
            .map(|outcome| *outcome)
            .ok_or_else(|| bad_response("the reply does not say what became of the hold"))
    }

    /// Returns the mode in which checks were decided: without a permit, none waits.
    fn mode(&self, mode: Mode) -> Mode {
        match (self.permit, mode) {
            (Some(false), Mode::Take) => Mode::TakeNow,
            _ => mode,
        }
    }

    /// Returns the answer that the script would give after this span without other requests.
    pub(crate) fn later(&self, span: Duration) -> Option<Self> {
        let micros = u64::try_from(span.as_micros()).ok()?;
        let now = Timestamp::from_micros(self.now.micros().checked_add(micros)?)?;
        Some(Self {
            entries: self.entries.clone(),
            permit: self.permit,
            ..Self::new(now)
        })
    }

    /// Returns the verdicts of a decision on `checks`.
    pub(crate) fn verdicts(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        let outcomes = self.outcomes(checks)?;
        Ok(outcomes.iter().map(|outcome| outcome.verdict).collect())
    }

    /// Returns the state of each band after a refund or an undo.
    pub(crate) fn states<'r>(
        &self,
        bands: impl ExactSizeIterator<Item = &'r Band>,
    ) -> Result<Verdicts, StoreError> {
        if bands.len() != self.entries.len() {
            return Err(bad_response("the reply does not have one state per band"));
        }
        let states = bands.zip(&self.entries).map(|(band, entry)| {
            let (verdict, _) = evaluate(
                band.shared_limit(),
                entry.stored,
                self.now,
                0,
                Mode::Peek,
                None,
            )?;
            Ok(verdict)
        });
        states.collect()
    }

    /// Returns what was charged for `checks`.
    pub(crate) fn charges(
        &self,
        checks: &Checks<'_>,
    ) -> Result<SmallVec<[UndoableCharge; 4]>, StoreError> {
        let outcomes = self.outcomes(checks)?;
        Ok(outcomes.iter().filter_map(|it| it.charge).collect())
    }

    /// Decides every check again, group by group as the script did.
    fn outcomes(&self, checks: &Checks<'_>) -> Result<SmallVec<[CheckOutcome; 4]>, StoreError> {
        let list = checks.list();
        let mut outcomes = SmallVec::new();
        let mut start = 0;
        while let Some(first) = list.get(start) {
            let group = list[start..].iter();
            let end = start + group.take_while(|check| check.group == first.group).count();
            let passes = self.evaluate_group(checks, start, end, &mut outcomes)?;
            start = end;
            if first.group == Group::ENFORCED && !passes {
                break;
            }
        }
        if self.entries.len() != start {
            return Err(bad_response(
                "the reply does not have one entry per decided check",
            ));
        }
        Ok(outcomes)
    }

    fn evaluate_group(
        &self,
        checks: &Checks<'_>,
        start: usize,
        end: usize,
        outcomes: &mut SmallVec<[CheckOutcome; 4]>,
    ) -> Result<bool, StoreError> {
        let mode = self.mode(checks.mode());
        let span = checks.hold().and_then(|hold| hold.span);
        let is_refused = checks.is_refused() && checks.list()[start].group == Group::ENFORCED;
        let mut passes = !is_refused;
        for at in start..end {
            passes &= self.entry(at)?.passes;
        }
        for (at, check) in checks.list()[start..end].iter().enumerate() {
            let at = start + at;
            let entry = self.entry(at)?;
            let (cost, is_last) = combined_cost(checks, at);
            let limit = check.band.shared_limit();
            let is_log = limit.algorithm() == Algorithm::SlidingLog;
            let is_charged = mode.takes() || mode == Mode::Preview && is_log;
            if check.band.charges_always() && !passes && is_charged {
                // The script reports the state after the charge.
                let mode = Mode::PeekNow;
                let (after, _) = evaluate(limit, entry.stored, self.now, cost, mode, None)?;
                // A band that denies a request denies it after a charge, too.
                if !entry.passes && after.passes() {
                    return Err(bad_response("the script and the core decided differently"));
                }
                let verdict = Verdict::charged_always(entry.passes, after);
                outcomes.push(CheckOutcome {
                    verdict,
                    charge: None,
                });
                continue;
            }
            let (verdict, mark) = evaluate(limit, entry.stored, self.now, cost, mode, span)?;
            if verdict.passes() != entry.passes {
                return Err(bad_response("the script and the core decided differently"));
            }
            let charge = mark.filter(|_| is_last).map(|mark| UndoableCharge {
                check: at,
                cost,
                mark,
                overhang: entry.stored.overhang_at(self.now),
            });
            outcomes.push(CheckOutcome { verdict, charge });
        }
        if passes && mode.takes() {
            return Ok(true);
        }
        for (at, outcome) in outcomes[start..].iter_mut().enumerate() {
            outcome.charge = None;
            let Check { band, cost, .. } = checks.list()[start + at];
            if band.charges_always() && !passes && mode.reports_charge() {
                let is_log = band.limit().algorithm() == Algorithm::SlidingLog;
                if !mode.takes() && !is_log {
                    let stored = self.entry(start + at)?.stored.cell(band.limit())?;
                    let units = total_cost(checks, start + at);
                    let limit = band.limit();
                    let after = Cell::assess_charged(limit, stored, self.now, units, cost);
                    let passes = outcome.verdict.passes();
                    outcome.verdict = Verdict::charged_always(passes, after);
                }
                continue;
            }
            if !passes && outcome.verdict.passes() && mode.reports_charge() {
                // The request is not charged, so report what is left without the charge.
                let stored = self.entry(start + at)?.stored;
                let mode = Mode::Peek;
                let limit = band.shared_limit();
                (outcome.verdict, _) = evaluate(limit, stored, self.now, cost, mode, span)?;
            }
        }
        Ok(passes)
    }

    /// Returns the state after a lease request.
    pub(super) fn only_state(&self) -> Result<StoredState, StoreError> {
        self.entry(0).map(|entry| entry.stored)
    }

    fn entry(&self, at: usize) -> Result<&Entry, StoreError> {
        let entry = self.entries.get(at);
        entry.ok_or_else(|| bad_response("the reply has fewer entries than checks"))
    }
}

/// Returns the cost of a check and of earlier checks of its group on the same counter, and
/// whether it is the last of them, which is charged for all.
pub(super) fn combined_cost(checks: &Checks<'_>, at: usize) -> (u64, bool) {
    let list = checks.list();
    let check = &list[at];
    let earlier = list[..at].iter().filter(|it| has_same_counter(it, check));
    let cost = earlier.fold(check.cost, |sum, other| sum.saturating_add(other.cost));
    let is_last = !list[at + 1..].iter().any(|it| has_same_counter(it, check));
    (cost, is_last)
}

/// Returns the cost of all checks of a group on the counter of one of them.
fn total_cost(checks: &Checks<'_>, at: usize) -> u64 {
    let check = &checks.list()[at];
    let all = checks
        .list()
        .iter()
        .filter(|it| has_same_counter(it, check));
    all.fold(0, |sum, other| sum.saturating_add(other.cost))
}

/// Returns whether two checks of one group are on the same counter.
fn has_same_counter(one: &Check<'_>, other: &Check<'_>) -> bool {
    one.group == other.group
        && one.band.id() == other.band.id()
        && one.subject.bytes == other.subject.bytes
}

/// The verdict on one check, and its charge.
#[derive(Clone, Copy, Debug)]
struct CheckOutcome {
    verdict: Verdict,
    charge: Option<UndoableCharge>,
}

/// Decides one check by the core's algorithms; `span` is the requested span of slots. Returns
/// the verdict and, if it charges anything, where the charge goes.
fn evaluate(
    limit: &Limit,
    stored: StoredState,
    now: Timestamp,
    cost: u64,
    mode: Mode,
    span: Option<Micros>,
) -> Result<(Verdict, Option<FracMicros>), StoreError> {
    if limit.algorithm() == Algorithm::Concurrency {
        let slots = stored.slots(limit, now, cost)?;
        let (verdict, charges) = slots.assess(limit, now, cost, mode, span);
        // Slots are identified by their hold.
        return Ok((verdict, charges.then_some(whole(0))));
    }
    if limit.algorithm() == Algorithm::SlidingLog {
        let summary = stored.log(limit, now, cost)?;
        let assessed = summary.assess(limit, now, cost, mode);
        // Not before the clock, so not before the epoch.
        let mark = assessed.charges.then(|| whole(assessed.at() as u64));
        return Ok((assessed.verdict, mark));
    }
    let assessed = Cell::assess(limit, stored.cell(limit)?, now, cost, mode);
    let mark = assessed.charged.map(|cell| match cell {
        Cell::Bucket(bucket) => {
            let rate = limit.rate();
            rate.saturating_sub(bucket.full_at, rate.time_of(cost))
        }
        Cell::Counts(counts) => whole(counts.start),
    });
    Ok((assessed.verdict, mark))
}

const fn whole(whole: u64) -> FracMicros {
    FracMicros { whole, part: 0 }
}
