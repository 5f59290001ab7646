//! The audit log: one line for each change, with its caller.

use fluxgate_core::StoreError;
use fluxgate_core::store::Reason;
use fluxgate_http::Problem;
use fluxgate_http::server::{Listener, Origin};
use fluxgate_redis::reason;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use tracing::field;

use super::tokens::Caller;
use crate::telemetry::RequestIds;
use crate::telemetry::log::{AUDIT, AuditReservation};
use crate::telemetry::percent::percent_decoded;

/// Why a change is made, as the caller says: UTF-8, which may be percent-encoded.
const REASON: &str = "x-fluxgate-reason";
/// The maximum number of characters of a reason. What is beyond is cut off.
const MAX_REASON: usize = 500;

/// A change that was applied, or may have been.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AuditedChange<'a> {
    /// The action, such as `refund`.
    pub(crate) action: &'static str,
    /// Empty for a limit that comes with the call.
    pub(crate) rule_set: &'a str,
    /// `None` for a change of the whole set.
    pub(crate) rule: Option<&'a str>,
    /// The name of a limit that comes with the call, if any.
    pub(crate) rule_id: Option<&'a str>,
    /// The identity whose state was changed, in the form that logs may contain.
    pub(crate) identity: Option<&'a str>,
    pub(crate) units: Option<u64>,
    /// How many counters were reset.
    pub(crate) reset: Option<u64>,
    /// The ETag of the rule set before, if it existed.
    pub(crate) etag_before: Option<&'a str>,
    /// The ETag of the rule set now, if it exists.
    pub(crate) etag_after: Option<&'a str>,
    /// Whether it is unknown if the change was applied.
    pub(crate) is_uncertain: bool,
}

/// Returns whether a change may have been applied although the store failed: the store did
/// not refuse it.
pub(crate) fn may_have_been_applied(error: &StoreError) -> bool {
    matches!(
        error.reason,
        reason::REDIS_ERROR | Reason::TIMEOUT | Reason::BAD_RESPONSE
    )
}

/// Reserves the audit line of a change. Must be called before the change is applied: a
/// change without an audit line is refused.
pub(crate) async fn reserve_audit_line() -> Result<AuditReservation, Problem> {
    AuditReservation::reserve().await.ok_or_else(|| {
        let detail = "the audit log cannot be written, so nothing was changed; make sure \
                      that standard error is read, and try again";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
            .with_header(RETRY_AFTER, HeaderValue::from_static("5"))
    })
}

/// Writes the audit line of a change.
pub(crate) fn write_audit_line(
    reservation: AuditReservation,
    caller: &Caller,
    headers: &HeaderMap,
    change: &AuditedChange<'_>,
) {
    let origin = Origin::with_headers(Listener::Api, headers);
    let RequestIds { request_id, trace } = RequestIds::from(&origin);
    let (outcome, message) = if change.is_uncertain {
        (Some("unknown"), "perhaps changed")
    } else {
        (None, "changed")
    };
    reservation.write(|| {
        tracing::info!(
            target: AUDIT,
            who = caller.name,
            what = change.action,
            rule_set = Some(change.rule_set).filter(|name| !name.is_empty()),
            rule = change.rule,
            rule_id = change.rule_id,
            identity = change.identity,
            units = change.units,
            reset = change.reset,
            etag_before = change.etag_before,
            etag_after = change.etag_after,
            outcome,
            reason = reason_of(headers),
            request_id,
            trace_id = trace.map(|trace| field::display(trace.trace_id)),
            span_id = trace.map(|trace| field::display(trace.span_id)),
            "{message}"
        );
    });
}

/// Returns the reason of a change, in one line.
pub(crate) fn reason_of(headers: &HeaderMap) -> Option<String> {
    let bytes = percent_decoded(headers.get(REASON)?.as_bytes());
    let text = String::from_utf8_lossy(&bytes);
    let clean = |char: char| if char.is_control() { ' ' } else { char };
    let text: String = text.trim().chars().take(MAX_REASON).map(clean).collect();
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        let reason = |value: &str| {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            reason_of(&HeaderMap::from_iter([(
                http::HeaderName::from_static(REASON),
                value,
            )]))
        };
        assert_eq!(reason("ticket 7"), Some("ticket 7".into()));
        assert_eq!(reason("%C3%A4%0Ab 100% %zz"), Some("ä b 100% %zz".into()));
        assert_eq!(reason("%20"), None);
        assert_eq!(
            reason(&"x".repeat(900)).map(|it| it.len()),
            Some(MAX_REASON)
        );
        assert_eq!(reason_of(&HeaderMap::new()), None);
    }
}
