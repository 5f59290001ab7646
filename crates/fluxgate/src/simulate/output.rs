//! One decision as a line of JSON.

use fluxgate_core::json::JsonWriter;
use fluxgate_core::{Decision, Timestamp};

/// Appends the line.
pub(super) fn write_decision(line: &mut Vec<u8>, at: Timestamp, decision: &Decision) {
    let mut out = JsonWriter(line);
    out.text("{\"t\":");
    out.number(at.micros());
    out.text(",");
    out.decision_fields(decision);
    out.text(",\"retry_after_us\":");
    out.number_or_null(decision.retry_after().after().map(|wait| wait.get()));
    out.text(",\"reset_after_us\":");
    out.number(decision.reset_after().get());
    out.text(",\"delay_us\":");
    out.number(decision.delay().get());
    out.text(",\"violated\":");
    out.violated(decision);
    out.text("}\n");
}
