//! What was changed, and by whom: a line in the log for each change.

use fluxgate_core::{Reason, StoreError};
use http::HeaderMap;
use tracing::field;

use super::{Admin, Caller};
use crate::engine::{Listener, Origin};
use crate::telemetry::KnownBy;
use crate::telemetry::log::AUDIT;

/// A change that was made, or may have been.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change<'a> {
    /// What was done.
    pub(crate) what: &'static str,
    pub(crate) rule_set: &'a str,
    /// Nothing where it is about a whole set.
    pub(crate) rule: Option<&'a str>,
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
        Reason::RedisError | Reason::Timeout | Reason::BadResponse
    )
}

impl Admin {
    /// Notes a change in the log.
    pub(crate) fn note(&self, caller: &Caller, headers: &HeaderMap, change: &Change<'_>) {
        let origin = Origin::with_headers(Listener::Api, headers);
        let KnownBy { request_id, trace } = KnownBy::from(&origin);
        let (outcome, said) = match change.is_unknown {
            true => (Some("unknown"), "perhaps changed"),
            false => (None, "changed"),
        };
        tracing::info!(
            target: AUDIT,
            who = caller.name,
            what = change.what,
            rule_set = change.rule_set,
            rule = change.rule,
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
    }
}
