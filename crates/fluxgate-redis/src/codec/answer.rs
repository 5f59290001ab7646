//! What the script found, and the verdicts that the core makes of it.
//!
//! The script has decided and written. Here the same decision is made again,
//! by the core and from the same state, to tell everything about it; if the two
//! ever differ, that is an error and no answer.

use std::time::Duration;

use fluxgate_core::algorithm::{Bucket, Cell, Counts, LogSummary, Overhang};
use fluxgate_core::limit::FracMicros;
use fluxgate_core::{
    Algorithm, Band, Check, Checks, Group, Limit, Mode, StoreError, Timestamp, Verdict, Verdicts,
};
use smallvec::SmallVec;

use super::{bad_response, frame};

/// What the script says to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    now: Timestamp,
    entries: SmallVec<[Entry; 4]>,
    /// Whether a request that has to wait got a place to; `None` if it need not, or
    /// no place was asked for.
    place: Option<bool>,
}

/// What it says to one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Whether the script let it pass.
    pub(super) passes: bool,
    /// What was stored before the decision.
    pub(super) found: Found,
}

/// What was stored at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// A bucket.
    Bucket(Bucket),
    /// Counts, with the tag of their algorithm.
    Counts(u8, Counts),
    /// What there is to know of a log.
    Log(LogSummary),
}

impl Found {
    fn overhang(&self) -> Overhang {
        match self {
            Self::Bucket(bucket) => bucket.overhang,
            _ => Overhang::NONE,
        }
    }
}

/// A charge that can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    /// Which of the checks.
    pub(super) check: usize,
    /// What was charged to its counter.
    pub(super) cost: u64,
    /// Where it went: the start of the window, or the instant of the event; for
    /// a bucket, when it would have been full without it, or when it was charged
    /// if it was full.
    pub(super) mark: FracMicros,
    /// The overhang of a bucket before it.
    pub(super) overhang: Overhang,
}

impl Answer {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            now,
            entries: SmallVec::new(),
            place: None,
        }
    }

    /// When it was decided, by the server's clock.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    pub(super) fn set_place(&mut self, has_place: bool) {
        self.place = Some(has_place);
    }

    /// Whether a request that has to wait got a place to; `None` if it need not, or
    /// no place was asked for.
    pub(crate) fn place(&self) -> Option<bool> {
        self.place
    }

    /// How checks in this mode were decided: without a place, nothing waits.
    fn mode(&self, mode: Mode) -> Mode {
        match (self.place, mode) {
            (Some(false), Mode::Take) => Mode::TakeNow,
            _ => mode,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The same, if it were asked for so much later and nothing else had come.
    pub(crate) fn later(&self, span: Duration) -> Option<Self> {
        let micros = u64::try_from(span.as_micros()).ok()?;
        Some(Self {
            now: Timestamp::from_micros(self.now.micros().checked_add(micros)?)?,
            entries: self.entries.clone(),
            place: self.place,
        })
    }

    /// The verdicts of a decision on `checks`.
    pub(crate) fn verdicts(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        let decided = self.decided(checks)?;
        Ok(decided.iter().map(|decided| decided.verdict).collect())
    }

    /// What each band holds after a refund or an undo.
    pub(crate) fn states<'r>(
        &self,
        bands: impl ExactSizeIterator<Item = &'r Band>,
    ) -> Result<Verdicts, StoreError> {
        if bands.len() != self.entries.len() {
            return Err(bad_response("not as many states as bands"));
        }
        let states = bands.zip(&self.entries).map(|(band, entry)| {
            let judged = judge(band.limit(), entry.found, self.now, 0, Mode::Peek)?;
            Ok(judged.verdict)
        });
        states.collect()
    }

    /// What was charged for `checks`.
    pub(super) fn charges(&self, checks: &Checks<'_>) -> Result<SmallVec<[Charge; 4]>, StoreError> {
        let decided = self.decided(checks)?;
        Ok(decided
            .iter()
            .filter_map(|decided| decided.charge)
            .collect())
    }

    /// Every check decided again, group by group as the script did.
    fn decided(&self, checks: &Checks<'_>) -> Result<SmallVec<[Decided; 4]>, StoreError> {
        let list = checks.list();
        let mut decided = SmallVec::new();
        let mut start = 0;
        while let Some(first) = list.get(start) {
            let group = list[start..].iter();
            let end = start + group.take_while(|check| check.group == first.group).count();
            let passes = self.decide_group(checks, start, end, &mut decided)?;
            start = end;
            if first.group == Group::ENFORCED && !passes {
                break;
            }
        }
        if self.entries.len() != start {
            return Err(bad_response("not as many entries as checks were decided"));
        }
        Ok(decided)
    }

    fn decide_group(
        &self,
        checks: &Checks<'_>,
        start: usize,
        end: usize,
        decided: &mut SmallVec<[Decided; 4]>,
    ) -> Result<bool, StoreError> {
        let mode = self.mode(checks.mode());
        let mut passes = true;
        for (at, check) in checks.list()[start..end].iter().enumerate() {
            let at = start + at;
            let entry = self.entry(at)?;
            let (cost, is_last) = sum_of(checks, at);
            let judged = judge(check.band.limit(), entry.found, self.now, cost, mode)?;
            if judged.verdict.passes() != entry.passes {
                return Err(bad_response("the script decided otherwise than the core"));
            }
            passes &= entry.passes;
            let charge = judged.mark.filter(|_| is_last).map(|mark| Charge {
                check: at,
                cost,
                mark,
                overhang: entry.found.overhang(),
            });
            decided.push(Decided {
                verdict: judged.verdict,
                charge,
            });
        }
        if passes && mode.takes() {
            return Ok(true);
        }
        for (at, decided) in decided[start..].iter_mut().enumerate() {
            decided.charge = None;
            if decided.verdict.passes() && mode.takes() {
                // Not charged after all: tell what is there without it.
                let Check { band, cost, .. } = checks.list()[start + at];
                let found = self.entry(start + at)?.found;
                let peeked = judge(band.limit(), found, self.now, cost, Mode::Peek)?;
                decided.verdict = peeked.verdict;
            }
        }
        Ok(passes)
    }

    fn entry(&self, at: usize) -> Result<&Entry, StoreError> {
        let entry = self.entries.get(at);
        entry.ok_or_else(|| bad_response("fewer entries than checks"))
    }
}

/// What a check asks of its counter together with the earlier ones of its group
/// that meet it there, and whether it is the last of them, which speaks for all.
pub(super) fn sum_of(checks: &Checks<'_>, at: usize) -> (u64, bool) {
    let list = checks.list();
    let check = &list[at];
    let meets = |other: &&Check<'_>| {
        other.group == check.group
            && other.band.id() == check.band.id()
            && other.subject.bytes == check.subject.bytes
    };
    let earlier = list[..at].iter().filter(meets);
    let cost = earlier.fold(check.cost, |sum, other| sum.saturating_add(other.cost));
    let is_last = !list[at + 1..].iter().any(|other| meets(&other));
    (cost, is_last)
}

#[derive(Clone, Copy, Debug)]
struct Decided {
    verdict: Verdict,
    charge: Option<Charge>,
}

struct Judged {
    verdict: Verdict,
    /// Where a charge goes, if there is something to charge.
    mark: Option<FracMicros>,
}

/// Judges by the core's own algorithms.
fn judge(
    limit: &Limit,
    found: Found,
    now: Timestamp,
    cost: u64,
    mode: Mode,
) -> Result<Judged, StoreError> {
    if limit.algorithm() == Algorithm::SlidingLog {
        let summary = log_of(limit, found, now, cost)?;
        let judged = summary.assess(limit, now, cost, mode);
        // Not before the clock, so not before the epoch.
        let mark = judged.charges.then(|| whole(judged.at() as u64));
        return Ok(Judged {
            verdict: judged.verdict,
            mark,
        });
    }
    let judged = Cell::assess(limit, cell_of(limit, found)?, now, cost, mode);
    let mark = judged.charged.map(|cell| match cell {
        Cell::Bucket(bucket) => {
            let rate = limit.rate();
            rate.saturating_sub(bucket.full_at, rate.time_of(cost))
        }
        Cell::Counts(counts) => whole(counts.start),
    });
    Ok(Judged {
        verdict: judged.verdict,
        mark,
    })
}

const fn whole(whole: u64) -> FracMicros {
    FracMicros { whole, part: 0 }
}

/// What was stored of a limit, if it can be of that limit.
fn cell_of(limit: &Limit, found: Found) -> Result<Option<Cell>, StoreError> {
    let is_bucket = limit.algorithm().is_bucket();
    match found {
        Found::Nothing => Ok(None),
        Found::Bucket(bucket) if is_bucket => Ok(Some(Cell::Bucket(bucket))),
        Found::Counts(tag, counts)
            if tag == frame::tag(limit) && counts.start.is_multiple_of(limit.window().get()) =>
        {
            Ok(Some(Cell::Counts(counts)))
        }
        _ => Err(bad_response("a state of another limit")),
    }
}

fn log_of(
    limit: &Limit,
    found: Found,
    now: Timestamp,
    cost: u64,
) -> Result<LogSummary, StoreError> {
    let mut summary = match found {
        Found::Nothing => return Ok(LogSummary::default()),
        Found::Log(summary) => summary,
        _ => return Err(bad_response("a state of another limit")),
    };
    let clock = now.micros() as i64;
    let at = summary.newest.map_or(clock, |newest| newest.max(clock));
    let is_live = |event: i64| event > at - limit.window().get() as i64 && event <= at;
    let capacity = limit.capacity();
    let too_many = summary.counted.saturating_add(cost) > capacity && cost <= capacity;
    summary.leaves = summary.leaves.filter(|_| too_many);
    let newest_counts = summary.newest.is_some_and(is_live);
    if newest_counts != (summary.counted > 0) || !summary.leaves.is_none_or(is_live) {
        return Err(bad_response("a log that cannot be"));
    }
    Ok(summary)
}
