//! A decision as JSON, in milliseconds.

use fluxgate_core::Decision;
use fluxgate_tower::{QUOTA_EXCEEDED, QUOTA_EXCEEDED_TITLE};

use crate::json_text::Json;

/// What the object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The decision alone.
    Decision,
    /// A problem (RFC 9457) that has the decision with it.
    Problem,
}

/// Appends the object.
pub(super) fn write_decision(out: &mut Vec<u8>, decision: &Decision, form: Form) {
    let mut out = Json(out);
    out.text("{");
    if form == Form::Problem {
        out.text("\"type\":\"");
        out.text(QUOTA_EXCEEDED);
        out.text("\",\"title\":\"");
        out.text(QUOTA_EXCEEDED_TITLE);
        out.text("\",\"status\":429,\"violated-policies\":");
        out.violated(decision);
        out.text(",");
    }
    out.fared(decision);
    out.text(",\"retry_after_ms\":");
    out.number_or_null(
        decision
            .retry_after()
            .after()
            .map(|wait| wait.ceil_millis()),
    );
    out.text(",\"reset_after_ms\":");
    out.number(decision.reset_after().ceil_millis());
    out.text(",\"delay_ms\":");
    out.number(decision.delay().ceil_millis());
    out.text(",\"violated\":");
    out.violated(decision);
    out.text("}");
}
