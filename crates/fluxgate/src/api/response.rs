//! Responses that handlers share: JSON of decisions and of faults, and errors of the engine as
//! problems.

use std::io::Write;

use axum::body::Body;
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use fluxgate_core::json::JsonWriter;
use fluxgate_core::yaml::Fault;
use fluxgate_core::{BandState, Decision, LimiterError};
use fluxgate_http::{PROBLEM_JSON, Problem, write_denial_start};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;

use crate::console::takes_gzip;
use crate::engine::EngineError;

/// A smaller response fits into one packet anyway.
const LEAST_COMPRESSED: usize = 1024;

/// The answer of a handler.
pub(super) type ApiResult = Result<Response, Problem>;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) fn json_response(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Returns a response with this JSON, compressed if the client accepts it and it is worth it.
pub(super) fn compressed_json(headers: &HeaderMap, json: String) -> Response {
    let is_compressed = json.len() >= LEAST_COMPRESSED && takes_gzip(headers);
    let mut response = if is_compressed {
        let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing to memory does not fail.
        let _ = compressed.write_all(json.as_bytes());
        json_response(compressed.finish().unwrap_or_default())
    } else {
        json_response(json)
    };
    let answer = response.headers_mut();
    if is_compressed {
        answer.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer.insert(VARY, HeaderValue::from_static("accept-encoding"));
    response
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let status = match &error {
            EngineError::Call(LimiterError::UnknownRuleSet(_))
            | EngineError::Call(LimiterError::UnknownRule { .. }) => StatusCode::NOT_FOUND,
            EngineError::Call(LimiterError::NotALimit { .. }) => StatusCode::BAD_REQUEST,
            EngineError::Call(LimiterError::Identity(why)) => {
                return Self::bad_request(format!("`identity`: {why}"));
            }
            // The rules are not loaded yet, or the store failed.
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

/// The form of the JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionForm {
    /// The decision only.
    Decision,
    /// A decision of a batch, which says by itself that its rule set does not exist: there is no
    /// header for each.
    InBatch,
    /// The decision of an explanation, with the reason why a wait was refused.
    Explanation,
    /// A problem document (RFC 9457) with this status, extended by the decision.
    Problem(StatusCode),
}

impl DecisionForm {
    pub(super) fn content_type(self) -> HeaderValue {
        match self {
            Self::Decision | Self::InBatch | Self::Explanation => JSON,
            Self::Problem(_) => PROBLEM_JSON,
        }
    }
}

/// Appends the JSON object to `out`.
pub(super) fn write_decision(out: &mut Vec<u8>, decision: &Decision, form: DecisionForm) {
    if let DecisionForm::Problem(status) = form {
        write_denial_start(decision, status, out);
    }
    let mut out = JsonWriter(out);
    match form {
        DecisionForm::Decision | DecisionForm::InBatch | DecisionForm::Explanation => out.text("{"),
        DecisionForm::Problem(_) => {
            out.text("\"violated-policies\":");
            out.violated(decision);
            out.text(",");
        }
    }
    out.check_fields(decision);
    if form == DecisionForm::InBatch && names_missing_set(decision) {
        out.text(",\"rule_set\":\"missing\"");
    }
    if form == DecisionForm::Explanation
        && let Some(refusal) = decision.wait_refusal()
    {
        out.text(",\"reason\":\"");
        out.text(refusal.name());
        out.text("\"");
    }
    out.text("}");
}

/// Returns whether the decision is about a rule set that does not exist.
pub(super) fn names_missing_set(decision: &Decision) -> bool {
    decision.rule_set().is_none() && !decision.outcome().is_store_failure()
}

/// Returns the units of a band that are out on lease; `None` if its units are not leased.
pub(super) fn units_on_lease(state: &BandState) -> Option<u64> {
    state.band.lease().map(|_| state.on_lease)
}

/// A fault or a warning with its position.
#[derive(Serialize)]
pub(super) struct FaultJson<'a> {
    line: usize,
    column: usize,
    message: &'a str,
}

/// Returns faults or warnings in a form that can be written as JSON.
pub(super) fn fault_list(faults: &[Fault]) -> Vec<FaultJson<'_>> {
    let faults = faults.iter().map(|Fault { position, message }| FaultJson {
        line: position.line,
        column: position.column,
        message,
    });
    faults.collect()
}
