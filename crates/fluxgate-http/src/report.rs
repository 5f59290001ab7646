//! The report on a request: a decision as filters, headers and response bodies read it.

use fluxgate_core::store::{Micros, Retry};
use fluxgate_core::{ActiveRule, Algorithm, Band, Decision, Outcome, Timestamp, WaitRefusal};
use http::StatusCode;

/// A decision on a request, made by a limiter in this process or by a remote service.
pub trait Report: Send + Sync {
    /// Returns whether the request may proceed, after [`Report::delay`].
    fn allowed(&self) -> bool;

    /// Returns the outcome of the decision.
    fn outcome(&self) -> Outcome;

    /// Returns the status of the response if a rule forbids the request.
    fn forbidden_status(&self) -> Option<StatusCode>;

    /// Returns how long an allowed request must wait before it proceeds.
    fn delay(&self) -> Micros;

    /// Returns how long a denied request should wait to be decided again, if that may help.
    fn worth_waiting(&self) -> Option<Micros>;

    /// Returns how long the request may wait in total, if its rules limit that.
    fn max_wait(&self) -> Option<Micros> {
        None
    }

    /// Converts the report on a delayed request that got no permit to wait.
    fn into_denied(self) -> Self;

    /// Sets why a denied request was not allowed to wait. Reports that do not tell ignore it.
    fn refuse_wait(self, refusal: WaitRefusal) -> Self
    where
        Self: Sized,
    {
        let _ = refusal;
        self
    }

    /// Advances the report by the time that the request has waited.
    fn after(self, waited: Micros) -> Self;

    /// Returns the capacity of the reported band.
    fn limit(&self) -> Option<u64>;

    /// Returns the whole units left in the reported band.
    fn remaining(&self) -> Option<u64>;

    /// Returns how long until the reported band is full again.
    fn reset_after(&self) -> Micros;

    /// Returns when the reported band is full again, by the clock that the decision used.
    fn reset_at(&self) -> Timestamp;

    /// Returns how long until the same request would be allowed; zero if it was.
    fn retry_after(&self) -> Retry;

    /// Appends the members of `RateLimit-Policy`, if any.
    fn write_policies(&self, text: &mut Vec<u8>);

    /// Appends the member of `RateLimit`, if any.
    fn write_rate_limit(&self, text: &mut Vec<u8>);

    /// Calls `visit` with the rule and the band of each violated policy, in order.
    fn for_each_violated(&self, visit: impl FnMut(&str, &str));
}

impl Report for Decision {
    fn allowed(&self) -> bool {
        Decision::allowed(self)
    }

    fn outcome(&self) -> Outcome {
        Decision::outcome(self)
    }

    fn forbidden_status(&self) -> Option<StatusCode> {
        let status = Decision::forbidden_status(self)?;
        StatusCode::from_u16(status).ok()
    }

    fn delay(&self) -> Micros {
        Decision::delay_micros(self)
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

    fn refuse_wait(self, refusal: WaitRefusal) -> Self {
        Decision::refuse_wait(self, refusal)
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
        Decision::reset_micros(self)
    }

    fn reset_at(&self) -> Timestamp {
        Decision::reset_timestamp(self)
    }

    fn retry_after(&self) -> Retry {
        Decision::retry(self)
    }

    /// Appends `"per-user/burst";q=10;w=1,"per-user/sustained";q=100;w=60`: every band that was
    /// enforced, so none of a rule that is in shadow for this identity. `w` is the window, or for
    /// a bucket the time to fill from empty: `q/w` is the rate, whatever the burst. Slots have a
    /// unit and no window: `"exports/b0";q=10;qu="concurrent-requests"`.
    fn write_policies(&self, text: &mut Vec<u8>) {
        let start = text.len();
        for (rule, band) in self.enforced_bands() {
            if text.len() > start {
                text.push(b',');
            }
            write_name(rule, band, text);
            write_parameter(b";q=", band.limit().capacity(), text);
            let span = band.quota_span();
            if band.algorithm() == Algorithm::Concurrency {
                text.extend_from_slice(b";qu=\"concurrent-requests\"");
            } else if span.whole >= SECOND {
                write_parameter(b";w=", span.ceil().div_ceil(SECOND), text);
            }
        }
    }

    /// Appends `"per-user/burst";r=9;t=1`: the reported band. A time below one second is omitted.
    fn write_rate_limit(&self, text: &mut Vec<u8>) {
        let reported = (self.rule(), self.band(), Decision::remaining(self));
        if let (Some(rule), Some(band), Some(remaining)) = reported {
            write_name(rule, band, text);
            write_parameter(b";r=", remaining, text);
            let reset = self.reset_micros();
            if reset.get() >= SECOND {
                write_parameter(b";t=", reset.ceil_secs(), text);
            }
        }
    }

    fn for_each_violated(&self, mut visit: impl FnMut(&str, &str)) {
        for violated in self.violated() {
            visit(violated.rule.id(), violated.band_id());
        }
    }
}

const SECOND: u64 = 1_000_000;

/// Appends the name of a band as a string. Ids hold no characters that it escapes.
fn write_name(rule: &ActiveRule, band: &Band, text: &mut Vec<u8>) {
    for part in ["\"", rule.id(), "/", band.id(), "\""] {
        text.extend_from_slice(part.as_bytes());
    }
}

fn write_parameter(name: &[u8], number: u64, text: &mut Vec<u8>) {
    text.extend_from_slice(name);
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
