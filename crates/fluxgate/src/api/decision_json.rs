//! A decision as JSON, in milliseconds.

use fluxgate_core::json::JsonWriter;
use fluxgate_core::{BandState, Decision};
use fluxgate_http::write_denial_start;
use http::StatusCode;

/// The form of the JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionForm {
    /// The decision only.
    Decision,
    /// The decision of an explanation, with the reason why a wait was refused.
    Explanation,
    /// A problem document (RFC 9457) with this status, extended by the decision.
    Problem(StatusCode),
}

/// Appends the JSON object to `out`.
pub(super) fn write_decision(out: &mut Vec<u8>, decision: &Decision, form: DecisionForm) {
    if let DecisionForm::Problem(status) = form {
        write_denial_start(decision, status, out);
    }
    let mut out = JsonWriter(out);
    match form {
        DecisionForm::Decision | DecisionForm::Explanation => out.text("{"),
        DecisionForm::Problem(_) => {
            out.text("\"violated-policies\":");
            out.violated(decision);
            out.text(",");
        }
    }
    out.check_fields(decision);
    if form == DecisionForm::Explanation
        && let Some(refusal) = decision.wait_refusal()
    {
        out.text(",\"reason\":\"");
        out.text(refusal.name());
        out.text("\"");
    }
    out.text("}");
}

/// Returns the units of a band that are out on lease; `None` if its units are not leased.
pub(super) fn units_on_lease(state: &BandState) -> Option<u64> {
    state.band.lease().map(|_| state.on_lease)
}
