//! `GET /v1/audit`: who changed, refunded or reset what, and why.

use axum::extract::State;
use fluxgate_core::IdentityRef;
use fluxgate_http::Problem;
use http::HeaderMap;
use http::request::Parts;

use super::history::history_of;
use super::query;
use super::response::{ApiResult, compressed_json};
use super::state::{ApiState, SharedState};
use crate::admin::{AuditedChange, Caller, Role, reason_of, write_audit_line};
use crate::history::AuditEntry;
use crate::telemetry::log::AuditReservation;

const DEFAULT_COUNT: usize = 100;
const MAX_COUNT: usize = 1_000;

/// Returns the last changes, the newest first.
pub(super) async fn audit(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let count = read_query(head.uri.query().unwrap_or_default())?;
    let entries = history_of(&api)?.audit(count).await?.join(",");
    let json = format!("{{\"entries\":[{entries}]}}");
    Ok(compressed_json(&head.headers, json))
}

fn read_query(query: &str) -> Result<usize, Problem> {
    let mut count = DEFAULT_COUNT;
    for field in query::fields(query) {
        let (name, value) = field?;
        match &*name {
            "n" => count = query::count("n", &value, MAX_COUNT)?,
            _ => return Err(query::unknown(&name)),
        }
    }
    Ok(count)
}

/// Writes the audit line of a change, and adds it to the record. `identity` is that whose state was
/// changed.
pub(super) fn audit_change(
    api: &ApiState,
    reservation: AuditReservation,
    (caller, headers): (&Caller, &HeaderMap),
    change: &AuditedChange<'_>,
    identity: Option<IdentityRef<'_>>,
) {
    write_audit_line(reservation, caller, headers, change);
    let Some(history) = &api.history else {
        return;
    };
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let (rule_set, rule) = (change.rule_set, change.rule.unwrap_or_default());
    let identities = api.engine.identities();
    // The log redacts what the record keeps as a pseudonym.
    let stored = identity.and_then(|it| api.engine.stored_identity(rule_set, rule, it));
    let shown = stored.as_ref().map(|it| identities.show(it));
    let entry = AuditEntry {
        who: caller.name.clone(),
        what: change.action,
        rule_set: owned(Some(rule_set).filter(|name| !name.is_empty())),
        rule: owned(change.rule),
        rule_id: owned(change.rule_id),
        identity: shown.or_else(|| owned(change.identity)),
        handle: stored
            .as_ref()
            .and_then(|it| identities.handle(rule_set, rule, it)),
        units: change.units,
        reset: change.reset,
        etag_before: owned(change.etag_before),
        etag_after: owned(change.etag_after),
        outcome: change.is_uncertain.then_some("unknown"),
        reason: reason_of(headers),
        ..AuditEntry::now()
    };
    history.add_audit(&entry);
}
