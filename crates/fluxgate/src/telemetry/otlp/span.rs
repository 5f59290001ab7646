//! A span: a request, or one decision about it.

use std::borrow::Cow;

use fluxgate_core::{ActiveRule, Decision, RuleSet};
use serde_json::{Value, json};

use crate::telemetry::metrics::reported_rule;
use crate::telemetry::otlp_json;
use crate::telemetry::trace_context::Hex;

/// The status code `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;
/// The flags of a span in a sampled trace whose parent is in this process, and in another one.
const SAMPLED: u32 = 0x101;
const REMOTE_AND_SAMPLED: u32 = 0x301;

/// A span of a sampled trace.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanKind,
    pub(super) trace_id: Hex<16>,
    pub(super) id: Hex<8>,
    pub(super) parent: Hex<8>,
    /// In nanoseconds since 1970.
    pub(super) start: u64,
    /// In nanoseconds since 1970.
    pub(super) end: u64,
    pub(super) attributes: Vec<Value>,
    /// Why it failed, if it did.
    pub(super) error: Option<Box<str>>,
}

/// How a span is related to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    /// `SPAN_KIND_INTERNAL`: the parent is in this process.
    Internal = 1,
    /// `SPAN_KIND_SERVER`: the parent is that of a client.
    Server = 2,
}

/// Returns the body of a request with these spans: an `ExportTraceServiceRequest`.
pub(super) fn request(spans: &[Span]) -> String {
    let spans: Vec<_> = spans.iter().map(span_json).collect();
    let request = json!({
        "resourceSpans": [{
            "resource": otlp_json::resource(),
            "scopeSpans": [{ "scope": otlp_json::scope(), "spans": spans }],
        }],
    });
    request.to_string()
}

fn span_json(span: &Span) -> Value {
    let status = match &span.error {
        Some(error) => json!({ "code": ERROR, "message": error }),
        None => json!({}),
    };
    let flags = match span.kind {
        SpanKind::Internal => SAMPLED,
        SpanKind::Server => REMOTE_AND_SAMPLED,
    };
    json!({
        "traceId": span.trace_id.to_string(),
        "spanId": span.id.to_string(),
        "parentSpanId": span.parent.to_string(),
        "flags": flags,
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": span.start.to_string(),
        "endTimeUnixNano": span.end.to_string(),
        "attributes": span.attributes,
        "status": status,
    })
}

/// Returns the attributes that name the rule of a decision.
pub(super) fn decided_by(decision: &Decision) -> Vec<Value> {
    let rule_set = decision.rule_set().map(RuleSet::name);
    let rule = reported_rule(decision).0.map(ActiveRule::id);
    let names = [("fluxgate.rule_set", rule_set), ("fluxgate.rule", rule)];
    let names = names.into_iter();
    names
        .filter_map(|(key, value)| Some(otlp_json::text(key, value?)))
        .collect()
}
