//! A decision as JSON, in milliseconds.

use fluxgate_core::json::JsonWriter;
use fluxgate_core::store::Micros;
use fluxgate_core::{BandState, Decision, HoldId};
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
    out.decision_fields(decision);
    out.text(",\"retry_after_ms\":");
    out.number_or_null(decision.retry().after().map(|wait| wait.ceil_millis()));
    out.text(",\"reset_after_ms\":");
    out.number(decision.reset_micros().ceil_millis());
    out.text(",\"delay_ms\":");
    out.number(decision.delay_micros().ceil_millis());
    out.text(",\"violated\":");
    out.violated(decision);
    if form == DecisionForm::Explanation
        && let Some(refusal) = decision.wait_refusal()
    {
        out.text(",\"reason\":\"");
        out.text(refusal.name());
        out.text("\"");
    }
    if let Some(hold) = decision.hold() {
        write_hold(&mut out, hold, decision.renew_within());
    }
    if let Some(reservation) = decision.reservation() {
        out.text(",\"reservation\":\"");
        out.text(&reservation.to_string());
        out.text("\"");
    }
    out.text("}");
}

/// Appends the id of a hold, and how soon it must be renewed.
pub(super) fn write_hold(out: &mut JsonWriter<'_>, hold: HoldId, renew_within: Micros) {
    out.text(",\"hold\":\"");
    out.text(&hold.to_string());
    out.text("\",\"hold_ms\":");
    out.number(renew_within.get() / 1_000);
}

/// Returns the units of a band that are out on lease; `None` if its units are not leased.
pub(super) fn units_on_lease(state: &BandState) -> Option<u64> {
    state.band.lease().map(|_| state.on_lease)
}
