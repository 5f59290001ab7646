//! What was changed, and by whom: a line in the log for each change.

use fluxgate_core::{Reason, StoreError};
use fluxgate_redis::reason;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use tracing::field;

use super::{Admin, Caller};
use crate::http::{Listener, Origin, Problem};
use crate::telemetry::RequestIds;
use crate::telemetry::log::{AUDIT, AuditPlace};

/// A change that was made, or may have been.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change<'a> {
    /// What was done.
    pub(crate) what: &'static str,
    /// Empty where it is about a limit that comes with the call.
    pub(crate) rule_set: &'a str,
    /// Nothing where it is about a whole set.
    pub(crate) rule: Option<&'a str>,
    /// The name of a limit that comes with the call, if it has one.
    pub(crate) rule_id: Option<&'a str>,
    /// Whose state, where it is about somebody's, as the log may say it.
    pub(crate) identity: Option<&'a str>,
    pub(crate) units: Option<u64>,
    /// How many counters were forgotten.
    pub(crate) reset: Option<u64>,
    /// What the rule set was before, if it was there.
    pub(crate) etag_before: Option<&'a str>,
    /// What it is now, if it is there.
    pub(crate) etag_after: Option<&'a str>,
    /// Whether it is not known that it was made.
    pub(crate) is_unknown: bool,
}

/// Whether a change may have been made although the store failed: it did not
/// say that it refuses.
pub(crate) fn may_be_done(error: &StoreError) -> bool {
    matches!(
        error.reason,
        reason::REDIS_ERROR | Reason::TIMEOUT | Reason::BAD_RESPONSE
    )
}

impl Admin {
    /// Takes a place in the log for the line of a change. To be called before the
    /// change is made: without a place it must not be.
    pub(crate) async fn audit_place(&self) -> Result<AuditPlace, Problem> {
        AuditPlace::take().await.ok_or_else(|| {
            let detail = "the audit log cannot be written: nothing was changed; see to what \
                          reads standard error, and try again";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                .with_header(RETRY_AFTER, HeaderValue::from_static("5"))
        })
    }

    /// Notes a change in the log, in its place.
    pub(crate) fn note(
        &self,
        place: AuditPlace,
        caller: &Caller,
        headers: &HeaderMap,
        change: &Change<'_>,
    ) {
        let origin = Origin::with_headers(Listener::Api, headers);
        let RequestIds { request_id, trace } = RequestIds::from(&origin);
        let (outcome, said) = match change.is_unknown {
            true => (Some("unknown"), "perhaps changed"),
            false => (None, "changed"),
        };
        place.write(|| {
            tracing::info!(
                target: AUDIT,
                who = caller.name,
                what = change.what,
                rule_set = Some(change.rule_set).filter(|name| !name.is_empty()),
                rule = change.rule,
                rule_id = change.rule_id,
                identity = change.identity,
                units = change.units,
                reset = change.reset,
                etag_before = change.etag_before,
                etag_after = change.etag_after,
                outcome,
                request_id,
                trace_id = trace.map(|trace| field::display(trace.trace_id)),
                span_id = trace.map(|trace| field::display(trace.span_id)),
                "{said}"
            );
        });
    }
}
