//! What a filter must know of an answer.

use fluxgate_core::{Band, Decision, Micros, Outcome, Retry, RuleMode, Timestamp};

use crate::headers::{push_policy, push_rate_limit};

/// An answer to a request, whoever gave it.
pub trait Report: Send + Sync {
    /// Whether the request may go on, after [`Report::delay`].
    fn allowed(&self) -> bool;

    /// How it fared.
    fn outcome(&self) -> Outcome;

    /// How long an allowed request must wait before it goes on.
    fn delay(&self) -> Micros;

    /// How long to wait before asking again, where a denial is worth that.
    fn worth_waiting(&self) -> Option<Micros>;

    /// How long it may wait in all, where the rules that it waits for say so.
    fn max_wait(&self) -> Option<Micros> {
        None
    }

    /// The same request, which was to wait and found no place to.
    fn into_denied(self) -> Self;

    /// The same request, when it has waited for so long: what is told of times is
    /// told from then.
    fn after(self, waited: Micros) -> Self;

    /// The capacity of the reported band.
    fn limit(&self) -> Option<u64>;

    /// Whole units left in the reported band.
    fn remaining(&self) -> Option<u64>;

    /// How long until the reported band is full again.
    fn reset_after(&self) -> Micros;

    /// When it is, by the clock of whoever decided.
    fn reset_at(&self) -> Timestamp;

    /// How long until the same request would pass; zero where it did.
    fn retry_after(&self) -> Retry;

    /// Appends the members of `RateLimit-Policy`, if there are any.
    fn write_policies(&self, text: &mut Vec<u8>);

    /// Appends the member of `RateLimit`, if there is one.
    fn write_rate_limit(&self, text: &mut Vec<u8>);

    /// Tells each band that refused, as `rule/band`, in order.
    fn for_each_violated(&self, tell: impl FnMut(&str, &str));
}

impl Report for Decision {
    fn allowed(&self) -> bool {
        Decision::allowed(self)
    }

    fn outcome(&self) -> Outcome {
        Decision::outcome(self)
    }

    fn delay(&self) -> Micros {
        Decision::delay(self)
    }

    fn worth_waiting(&self) -> Option<Micros> {
        Decision::worth_waiting(self)
    }

    fn max_wait(&self) -> Option<Micros> {
        Decision::max_wait(self)
    }

    fn into_denied(self) -> Self {
        Decision::into_denied(self)
    }

    fn after(self, waited: Micros) -> Self {
        Decision::after(self, waited)
    }

    fn limit(&self) -> Option<u64> {
        Decision::limit(self)
    }

    fn remaining(&self) -> Option<u64> {
        Decision::remaining(self)
    }

    fn reset_after(&self) -> Micros {
        Decision::reset_after(self)
    }

    fn reset_at(&self) -> Timestamp {
        Decision::reset_at(self)
    }

    fn retry_after(&self) -> Retry {
        Decision::retry_after(self)
    }

    /// `"per-user/burst";q=10;w=1,"per-user/sustained";q=100;w=60`: every band
    /// that could have refused. Those of shadow rules cannot.
    fn write_policies(&self, text: &mut Vec<u8>) {
        let start = text.len();
        for (rule, band) in self.bands() {
            if rule.mode() == RuleMode::Shadow {
                continue;
            }
            if text.len() > start {
                text.push(b',');
            }
            push_policy(rule, band, text);
        }
    }

    /// `"per-user/burst";r=9;t=1`: the band that is reported.
    fn write_rate_limit(&self, text: &mut Vec<u8>) {
        let remaining = Decision::remaining(self);
        if let (Some(rule), Some(band), Some(remaining)) = (self.rule(), self.band(), remaining) {
            push_rate_limit((rule, band), remaining, Decision::reset_after(self), text);
        }
    }

    fn for_each_violated(&self, mut tell: impl FnMut(&str, &str)) {
        for violated in self.violated() {
            let band = violated.band.map_or(Band::MISSING_KEY, Band::id);
            tell(violated.rule.id(), band);
        }
    }
}
