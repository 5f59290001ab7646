//! The span of a request to the gateway, named and described as OpenTelemetry does for HTTP servers.

use fluxgate_gateway::{EndedRequest, RequestTrace};

use super::span::{Span, SpanKind, decided_by};
use crate::telemetry::metrics::{OTHER_METHOD, known_method, version_of};
use crate::telemetry::trace_context::{Hex, TraceContext};
use crate::telemetry::{clock, otlp_json};

/// Begins the span of a request. What happens within the request has this span as its parent.
pub(super) fn begin(parent: &TraceContext) -> RequestTrace {
    let (trace, id) = (parent.trace_id, otlp_json::next_id());
    RequestTrace {
        traceparent: format!("00-{trace}-{id}-01").into(),
        parent: parent.span_id.0,
    }
}

/// Returns the span of a request that has ended, if it is traced.
pub(super) fn of(request: &EndedRequest<'_>) -> Option<Span> {
    let trace = request.trace?;
    let own = TraceContext::parse(&trace.traceparent)?;
    let end = clock::unix_time();
    let method = known_method(request.facts.method);
    let shown = if method == OTHER_METHOD {
        "HTTP"
    } else {
        method
    };
    let name = match request.route {
        Some(route) => format!("{shown} {route}"),
        None => shown.to_owned(),
    };
    let is_error = request.status >= 500;
    let error = request.error.unwrap_or(match request.upstream {
        Some(_) => "the upstream responded with an error",
        None => "the request was refused",
    });
    Some(Span {
        name: name.into(),
        kind: SpanKind::Server,
        trace_id: own.trace_id,
        id: own.span_id,
        parent: Hex(trace.parent),
        start: clock::nanos(end.saturating_sub(request.took)),
        end: clock::nanos(end),
        attributes: attributes(request, method),
        error: is_error.then(|| error.into()),
    })
}

fn attributes(request: &EndedRequest<'_>, method: &'static str) -> Vec<serde_json::Value> {
    use otlp_json::{number, text};
    let facts = &request.facts;
    let mut attributes = vec![
        text("http.request.method", method),
        text("url.path", facts.path),
        text("url.scheme", facts.scheme),
        text("network.protocol.version", version_of(facts.protocol)),
        number("http.response.status_code", u64::from(request.status)),
        number("http.request.body.size", request.bytes_in),
        number("http.response.body.size", request.bytes_out),
        number("fluxgate.attempts", u64::from(request.attempts)),
        text("fluxgate.request_id", facts.request_id),
    ];
    let status = request.status.to_string();
    let optional = [
        (
            "http.request.method_original",
            Some(facts.method).filter(|_| method == OTHER_METHOD),
        ),
        ("http.route", request.route),
        ("fluxgate.upstream", request.upstream),
        (
            "fluxgate.outcome",
            request.decision.map(|it| it.outcome().name()),
        ),
        ("fluxgate.error", request.error),
        (
            "error.type",
            Some(&*status).filter(|_| request.status >= 500),
        ),
    ];
    let optional = optional.into_iter();
    attributes.extend(optional.filter_map(|(key, value)| Some(text(key, value?))));
    if let Some(agent) = facts.user_agent {
        attributes.push(text("user_agent.original", &String::from_utf8_lossy(agent)));
    }
    attributes.extend(request.decision.map(decided_by).unwrap_or_default());
    attributes
}
