//! The states of keys, as the script reports them.

use fluxgate_core::algorithm::{Bucket, Cell, Counts, LogSummary, Mode, Overhang, Verdict};
use fluxgate_core::store::{Micros, Retry};
use fluxgate_core::{Algorithm, Limit, StoreError, Timestamp};

use crate::error::bad_response;

/// The tag of a bucket's state.
pub(super) const BUCKET_TAG: u8 = 241;

/// The tag of a bucket in a check if requests are spaced out.
pub(super) const SHAPING_TAG: u8 = 242;
/// The tag of a calendar window in a check.
pub(super) const CALENDAR_TAG: u8 = 246;
/// The tag of slots in a check.
pub(super) const SLOTS_TAG: u8 = 247;

/// Returns the tag of a limit's algorithm in a check.
pub(super) fn tag_of(limit: &Limit) -> u8 {
    match limit.windows() {
        Some(_) => CALENDAR_TAG,
        None => state_tag_of(limit),
    }
}

/// Returns the tag of a limit's state.
fn state_tag_of(limit: &Limit) -> u8 {
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => bucket_tag(limit.rate().shape()),
        Algorithm::FixedWindow => 243,
        Algorithm::SlidingWindow => 244,
        Algorithm::SlidingLog => 245,
        Algorithm::Concurrency => SLOTS_TAG,
    }
}

/// Returns the tag of a bucket in a check.
pub(super) fn bucket_tag(shape: bool) -> u8 {
    if shape { SHAPING_TAG } else { BUCKET_TAG }
}

/// Returns the window of a limit, or the `max_wait` of a bucket, in milliseconds.
pub(super) fn window_ms(limit: &Limit) -> u64 {
    let span = if limit.algorithm().is_bucket() {
        limit.rate().max_wait().unwrap_or_default()
    } else {
        limit.window()
    };
    span.get() / 1000
}

/// The state that the script found at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredState {
    Nothing,
    Bucket(Bucket),
    /// Counts, with the tag of their algorithm.
    Counts(u8, Counts),
    Log(LogSummary),
    Slots(SlotSummary),
}

impl StoredState {
    /// Returns the overhang of a bucket.
    pub(super) fn overhang_at(&self, now: Timestamp) -> Overhang {
        match self {
            Self::Bucket(bucket) => bucket.overhang_at(now),
            _ => Overhang::NONE,
        }
    }

    /// Returns the state of a limit that is not a log.
    pub(super) fn cell(self, limit: &Limit) -> Result<Option<Cell>, StoreError> {
        let is_bucket = limit.algorithm().is_bucket();
        match self {
            Self::Nothing => Ok(None),
            Self::Bucket(bucket) if is_bucket => Ok(Some(Cell::Bucket(bucket))),
            Self::Counts(tag, counts)
                if tag == state_tag_of(limit) && begins_a_window(limit, counts.start) =>
            {
                Ok(Some(Cell::Counts(counts)))
            }
            _ => Err(bad_response("the reply has the state of another limit")),
        }
    }

    /// Returns the state of a log, for a request of this cost.
    pub(super) fn log(
        self,
        limit: &Limit,
        now: Timestamp,
        cost: u64,
    ) -> Result<LogSummary, StoreError> {
        let mut summary = match self {
            Self::Nothing => return Ok(LogSummary::default()),
            Self::Log(summary) => summary,
            _ => return Err(bad_response("the reply has the state of another limit")),
        };
        let clock = now.micros() as i64;
        let at = summary.newest.map_or(clock, |newest| newest.max(clock));
        let is_live = |event: i64| event > at - limit.window().get() as i64 && event <= at;
        let capacity = limit.capacity();
        let too_many = summary.counted.saturating_add(cost) > capacity && cost <= capacity;
        summary.leaves = summary.leaves.filter(|_| too_many);
        let newest_counts = summary.newest.is_some_and(is_live);
        if newest_counts != (summary.counted > 0) || !summary.leaves.is_none_or(is_live) {
            return Err(bad_response("the reply has an impossible log"));
        }
        Ok(summary)
    }

    /// Returns the state of slots, for a request of this cost.
    pub(super) fn slots(
        self,
        limit: &Limit,
        now: Timestamp,
        cost: u64,
    ) -> Result<SlotSummary, StoreError> {
        match self {
            Self::Nothing => Ok(SlotSummary::default()),
            Self::Slots(summary) => summary.of_request(limit, now, cost),
            _ => Err(bad_response("the reply has the state of another limit")),
        }
    }
}

/// Returns whether a window of a limit may begin at this instant. A calendar window may begin
/// anywhere, since another instance may have another edition of the time zones.
fn begins_a_window(limit: &Limit, start: u64) -> bool {
    limit.windows().is_some() || start.is_multiple_of(limit.window().get())
}

/// What an assessment needs to know of the slots of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotSummary {
    /// The slots that are held.
    pub(super) held: u64,
    /// When the last of them ends; the epoch if none is held.
    pub(super) last: u64,
    /// When enough of them have ended for the request; the epoch if it passes or never can.
    pub(super) enough: u64,
}

impl SlotSummary {
    /// Returns the summary for a request of this cost, if it is possible.
    pub(super) fn of_request(
        mut self,
        limit: &Limit,
        now: Timestamp,
        cost: u64,
    ) -> Result<Self, StoreError> {
        let is_held = |end: u64| end > now.micros() && end <= self.last;
        let capacity = limit.capacity();
        let too_many = self.held.saturating_add(cost) > capacity && cost <= capacity;
        if !too_many {
            self.enough = 0;
        }
        let is_possible =
            is_held(self.last) == (self.held > 0) && (!too_many || is_held(self.enough));
        if is_possible {
            Ok(self)
        } else {
            Err(bad_response("the reply has impossible slots"))
        }
    }

    /// Returns the verdict of `fluxgate_core::algorithm::Slots::assess`, and
    /// whether a charge would take slots.
    pub(super) fn assess(
        &self,
        limit: &Limit,
        now: Timestamp,
        cost: u64,
        mode: Mode,
        span: Option<Micros>,
    ) -> (Verdict, bool) {
        let capacity = limit.capacity();
        let retry_after = if cost > capacity {
            Retry::Never
        } else {
            Retry::After(Micros::new(self.enough.saturating_sub(now.micros())))
        };
        let charges = retry_after == Retry::NOW && cost > 0;
        let last = Micros::new(self.last.saturating_sub(now.micros()));
        let (held, last) = if charges && mode.reports_charge() {
            let longest = limit.window();
            let span = span.map_or(longest, |span| span.min(longest));
            (self.held + cost, last.max(span))
        } else {
            (self.held, last)
        };
        let verdict = Verdict {
            at: now,
            // At most a capacity.
            remaining: capacity.saturating_sub(held) as u32,
            part: 0,
            retry_after,
            reset_after: last,
            delay: Micros::ZERO,
        };
        (verdict, charges)
    }
}
