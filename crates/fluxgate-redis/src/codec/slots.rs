//! Concurrency slots, as the script reports them.

use fluxgate_core::algorithm::{Mode, Verdict};
use fluxgate_core::store::{Micros, Retry};
use fluxgate_core::{Limit, StoreError, Timestamp};

use crate::error::bad_response;

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
