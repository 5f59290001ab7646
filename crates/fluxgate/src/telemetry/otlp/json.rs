//! Writes spans as the JSON form of OTLP's `ExportTraceServiceRequest`: names in camel case,
//! ids in hexadecimal, enums as numbers, 64-bit numbers as strings.

use std::sync::LazyLock;

use fluxgate_core::Outcome;
use serde_json::{Value, json};

use super::span::{self, Span};

/// The span kind `SPAN_KIND_SERVER`.
const SERVER: u8 = 2;
/// The status code `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;
/// The flags for a remote parent and a sampled trace.
const REMOTE_AND_SAMPLED: u32 = 0x301;

/// Distinguishes this process from others of the same service.
static INSTANCE: LazyLock<String> = LazyLock::new(|| span::next_id().to_string());

/// Returns the body of a request with these spans.
pub(super) fn request(spans: &[Span]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        attribute("service.name", "fluxgate"),
        attribute("service.version", version),
        attribute("service.instance.id", &INSTANCE),
    ];
    let spans: Vec<_> = spans.iter().map(span).collect();
    let request = json!({
        "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{
                "scope": { "name": "fluxgate", "version": version },
                "spans": spans,
            }],
        }],
    });
    request.to_string()
}

fn span(span: &Span) -> Value {
    let values = [
        ("fluxgate.rule_set", span.rule_set.as_deref()),
        ("fluxgate.rule", span.rule.as_deref()),
        ("fluxgate.outcome", Some(span.outcome.name())),
        ("fluxgate.listener", Some(span.listener.name())),
        ("fluxgate.request_id", Some(&*span.request_id)),
    ];
    let attributes: Vec<_> = values
        .iter()
        .filter_map(|(key, value)| Some(attribute(key, (*value)?)))
        .collect();
    let failed = matches!(span.outcome, Outcome::FailedOpen | Outcome::FailedClosed);
    let status = if failed {
        json!({ "code": ERROR, "message": "the store failed" })
    } else {
        json!({})
    };
    json!({
        "traceId": span.parent.trace_id.to_string(),
        "spanId": span.id.to_string(),
        "parentSpanId": span.parent.span_id.to_string(),
        "flags": REMOTE_AND_SAMPLED,
        "name": span.name,
        "kind": SERVER,
        "startTimeUnixNano": span.start.to_string(),
        "endTimeUnixNano": span.end.to_string(),
        "attributes": attributes,
        "status": status,
    })
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}
