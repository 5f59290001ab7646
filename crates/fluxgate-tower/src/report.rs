//! The report on a request: a decision as filters, headers and response bodies read it.

use fluxgate_core::{Band, Decision, Micros, Outcome, Retry, Rule, RuleMode, Timestamp};

/// A decision on a request, made by a limiter in this process or by a remote service.
pub trait Report: Send + Sync {
    /// Returns whether the request may proceed, after [`Report::delay`].
    fn allowed(&self) -> bool;

    /// Returns the outcome of the decision.
    fn outcome(&self) -> Outcome;

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

    /// `"per-user/burst";q=10;w=1,"per-user/sustained";q=100;w=60`: every band that can deny,
    /// which excludes those of shadow rules.
    fn write_policies(&self, text: &mut Vec<u8>) {
        let start = text.len();
        for (rule, band) in self.bands() {
            if rule.mode() == RuleMode::Shadow {
                continue;
            }
            if text.len() > start {
                text.push(b',');
            }
            write_name(rule, band, text);
            write_parameter(b";q=", band.limit().capacity(), text);
            write_seconds(b";w=", band.limit().window(), text);
        }
    }

    /// `"per-user/burst";r=9;t=1`: the reported band.
    fn write_rate_limit(&self, text: &mut Vec<u8>) {
        let remaining = Decision::remaining(self);
        if let (Some(rule), Some(band), Some(remaining)) = (self.rule(), self.band(), remaining) {
            write_name(rule, band, text);
            write_parameter(b";r=", remaining, text);
            write_seconds(b";t=", Decision::reset_after(self), text);
        }
    }

    fn for_each_violated(&self, mut visit: impl FnMut(&str, &str)) {
        for violated in self.violated() {
            let band = violated.band.map_or(Band::MISSING_KEY, Band::id);
            visit(violated.rule.id(), band);
        }
    }
}

/// Appends the name of a band as a string. Ids hold no characters that it escapes.
fn write_name(rule: &Rule, band: &Band, text: &mut Vec<u8>) {
    for part in ["\"", rule.id(), "/", band.id(), "\""] {
        text.extend_from_slice(part.as_bytes());
    }
}

/// Appends a span in seconds, rounded up. A span below one second is omitted.
fn write_seconds(name: &[u8], span: Micros, text: &mut Vec<u8>) {
    const SECOND: u64 = 1_000_000;
    if span.get() >= SECOND {
        write_parameter(name, span.ceil_secs(), text);
    }
}

fn write_parameter(name: &[u8], number: u64, text: &mut Vec<u8>) {
    text.extend_from_slice(name);
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
