//! Properties of trace contexts that hold for any bytes.

use super::TraceContext;

/// Checks that parsing any bytes and displaying the result gives back the same context.
pub(crate) fn traceparent(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Some(context) = TraceContext::parse(text) else {
        return;
    };
    let (trace_id, span_id) = (context.trace_id, context.span_id);
    let ids = format!("-{trace_id}-{span_id}-");
    assert_eq!(text.get(2..2 + ids.len()), Some(&*ids));
    assert!(trace_id.0 != [0; 16] && span_id.0 != [0; 8]);
    let again = format!("00{ids}0{}", u8::from(context.sampled));
    assert_eq!(TraceContext::parse(&again), Some(context));
}
