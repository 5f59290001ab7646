//! A span: one decision about a traced request.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use fluxgate_core::Outcome;
use fluxgate_http::server::Listener;
use serde_json::{Value, json};

use crate::telemetry::trace_context::{Hex, TraceContext};

/// The span kind `SPAN_KIND_SERVER`.
const SERVER: u8 = 2;
/// The status code `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;
/// The flags for a remote parent and a sampled trace.
const REMOTE_AND_SAMPLED: u32 = 0x301;

/// Distinguishes this process from others of the same service.
static INSTANCE: LazyLock<String> = LazyLock::new(|| next_id().to_string());

/// One decision about a traced request.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) name: &'static str,
    /// The trace and the caller's span.
    pub(super) parent: TraceContext,
    pub(super) id: Hex<8>,
    /// In nanoseconds since 1970.
    pub(super) start: u64,
    /// In nanoseconds since 1970.
    pub(super) end: u64,
    /// `None` for an ad-hoc limit, or if the set does not exist.
    pub(super) rule_set: Option<Box<str>>,
    pub(super) rule: Option<Box<str>>,
    pub(super) outcome: Outcome,
    pub(super) listener: Listener,
    pub(super) request_id: Box<str>,
}

/// Returns a random id.
pub(super) fn next_id() -> Hex<8> {
    thread_local! {
        static IDS: (RandomState, Cell<u64>) = (RandomState::new(), Cell::new(0));
    }
    let id = IDS.with(|(random, count)| {
        count.set(count.get().wrapping_add(1));
        random.hash_one(count.get())
    });
    // Zero is not a valid id.
    Hex(id.max(1).to_be_bytes())
}

/// Returns the body of a request with these spans: the JSON form of OTLP's
/// `ExportTraceServiceRequest`, with names in camel case, ids in hexadecimal, enums as numbers and
/// 64-bit numbers as strings.
pub(super) fn request(spans: &[Span]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        attribute("service.name", "fluxgate"),
        attribute("service.version", version),
        attribute("service.instance.id", &INSTANCE),
    ];
    let spans: Vec<_> = spans.iter().map(span_json).collect();
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

fn span_json(span: &Span) -> Value {
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
