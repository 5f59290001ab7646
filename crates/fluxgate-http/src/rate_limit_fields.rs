//! The members of the fields `RateLimit-Policy` and `RateLimit`.

use fluxgate_core::store::Micros;
use fluxgate_core::{ActiveRule, Algorithm, Band, Decision};

const SECOND: u64 = 1_000_000;

/// Appends `"per-user/burst";q=10;w=1,"per-user/sustained";q=100;w=60`: every band that was
/// enforced, so none of a rule that is in shadow for this identity. `w` is the window, or for a
/// bucket the time to fill from empty: `q/w` is the rate, whatever the burst. Slots have a unit
/// and no window: `"exports/b0";q=10;qu="concurrent-requests"`.
pub(crate) fn write_policies(decision: &Decision, text: &mut Vec<u8>) {
    let start = text.len();
    for (rule, band) in decision.enforced_bands() {
        if text.len() > start {
            text.push(b',');
        }
        write_name(rule, band, text);
        write_parameter(b";q=", band.limit().capacity(), text);
        match band.algorithm() {
            Algorithm::Concurrency => text.extend_from_slice(b";qu=\"concurrent-requests\""),
            _ => {
                let span = band.quota_span();
                if span.whole >= SECOND {
                    write_parameter(b";w=", span.ceil().div_ceil(SECOND), text);
                }
            }
        }
    }
}

/// Appends `"per-user/burst";r=9;t=1`: the reported band.
pub(crate) fn write_rate_limit(decision: &Decision, text: &mut Vec<u8>) {
    let remaining = decision.remaining();
    if let (Some(rule), Some(band), Some(remaining)) = (decision.rule(), decision.band(), remaining)
    {
        write_name(rule, band, text);
        write_parameter(b";r=", remaining, text);
        write_seconds(b";t=", decision.reset_micros(), text);
    }
}

/// Appends the name of a band as a string. Ids hold no characters that it escapes.
fn write_name(rule: &ActiveRule, band: &Band, text: &mut Vec<u8>) {
    for part in ["\"", rule.id(), "/", band.id(), "\""] {
        text.extend_from_slice(part.as_bytes());
    }
}

/// Appends a span in seconds, rounded up. A span below one second is omitted.
fn write_seconds(name: &[u8], span: Micros, text: &mut Vec<u8>) {
    if span.get() >= SECOND {
        write_parameter(name, span.ceil_secs(), text);
    }
}

fn write_parameter(name: &[u8], number: u64, text: &mut Vec<u8>) {
    text.extend_from_slice(name);
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
