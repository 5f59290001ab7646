//! An update of a stored rule set, from reading it until the change is active.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use fluxgate_core::StoreError;
use fluxgate_http::Problem;
use fluxgate_redis::{
    BackOff, Precondition, RuleChange, RuleStore, StoredSet, WriteOutcome, etag_of,
};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::access::{no_such_set, read, set_etag, store_failed, store_of};
use super::edit::{Edit, EditResult, EditTarget};
use crate::admin::{AuditedChange, Caller, may_have_been_applied, reserve_audit_line};
use crate::api::admin::conditions::Condition;
use crate::api::audit::audit_change;
use crate::api::blocking_pool::{join, run_to_completion};
use crate::api::response::{ApiResult, fault_list, json_response};
use crate::api::state::ApiState;
use crate::events::{RulesAction, list_of};
use crate::reload::changes_json;
use crate::telemetry::log::AuditReservation;

/// How often an update is tried while other instances change the same set.
const MAX_TRIES: usize = 5;
/// The longest wait before the next try.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// A requested update.
#[derive(Debug)]
pub(super) struct Update {
    headers: HeaderMap,
    caller: Caller,
    target: EditTarget,
    edit: Edit,
    condition: Condition,
}

/// An update that was written.
#[derive(Debug)]
struct WrittenUpdate {
    edited: EditResult,
    /// The ETag of the set before.
    before: Option<String>,
    /// The reservation of its line in the audit log.
    audit: AuditReservation,
}

impl Update {
    pub(super) fn new(
        head: &Parts,
        caller: Caller,
        set: String,
        rule: Option<String>,
        edit: Edit,
    ) -> Result<Arc<Self>, Problem> {
        Ok(Arc::new(Self {
            headers: head.headers.clone(),
            caller,
            target: EditTarget { set, rule },
            edit,
            condition: Condition::from_headers(&head.headers)?,
        }))
    }

    /// Writes the edited set if the condition holds, records the change in the audit log, and
    /// waits until it is active.
    pub(super) async fn run(self: Arc<Self>, api: Arc<ApiState>) -> ApiResult {
        let audit = reserve_audit_line().await?;
        run_to_completion(async move {
            let outcome = self.write(&api, audit).await?;
            let WrittenUpdate {
                mut edited,
                before,
                audit,
            } = outcome;
            if matches!(self.edit, Edit::Replace(_)) {
                edited.created = before.is_none();
            }
            self.audit(&api, audit, before.as_deref(), &edited, false);
            let reloaded = api.admin.reloader.now().await;
            let after = edited.set.as_deref().map(etag_of);
            if before != after {
                self.record_event(&api, &edited).await;
            }
            Ok(match reloaded {
                Ok(()) => self.response(&edited),
                Err(why) => not_active(&why),
            })
        })
        .await
    }

    /// Records the change as an event.
    async fn record_event(&self, api: &ApiState, edited: &EditResult) {
        let set = &self.target.set;
        let is_rollback = match (store_of(api), &edited.set) {
            (Ok(store), Some(text)) => is_rollback(store, set, text).await,
            _ => false,
        };
        let action = if is_rollback {
            RulesAction::RolledBack
        } else {
            RulesAction::Applied
        };
        let details = if edited.set.is_none() {
            format!("{set} removed")
        } else {
            list_of(&edited.changes)
        };
        let who = &self.caller.name;
        api.events.record_rule_change(action, set, who, details);
    }

    /// Returns whether the edit applies to any stored content.
    fn is_unconditional(&self) -> bool {
        let is_whole = matches!(self.edit, Edit::Replace(_) | Edit::Delete);
        is_whole && self.condition == Condition::Any
    }

    async fn write(
        self: &Arc<Self>,
        api: &Arc<ApiState>,
        audit: AuditReservation,
    ) -> Result<WrittenUpdate, Problem> {
        let store = store_of(api)?;
        let _lock = api.admin.write_lock.lock().await;
        let mut back_off = BackOff::up_to(LONGEST_WAIT);
        let mut last = None;
        for _ in 0..MAX_TRIES {
            let stored = read(store, &self.target.set).await?;
            if stored.is_none() && !self.is_unconditional() {
                let lost = store
                    .is_lost(&self.target.set)
                    .await
                    .map_err(store_failed)?;
                if lost {
                    return Err(self.inconsistent_index());
                }
            }
            let seen = stored.as_ref().map(|stored| stored.etag.clone());
            let edited = self.edited(stored, api).await?;
            let written = match self.try_write(store, &edited, seen.as_deref()).await {
                Ok(written) => written,
                Err(error) => {
                    if may_have_been_applied(&error) {
                        self.audit(api, audit, seen.as_deref(), &edited, true);
                    }
                    return Err(store_failed(error));
                }
            };
            let now = match written {
                WriteOutcome::Done { before: None } if edited.set.is_none() => {
                    return Err(no_such_set(&self.target.set));
                }
                WriteOutcome::Done { before } => {
                    return Ok(WrittenUpdate {
                        edited,
                        before,
                        audit,
                    });
                }
                WriteOutcome::Conflict { now } => now,
            };
            // A writer that is only slower than others does not see the same conflict twice.
            let conflict = Some((seen, now));
            if last == conflict {
                return Err(self.inconsistent_index());
            }
            last = conflict;
            tokio::time::sleep(back_off.next_wait()).await;
        }
        Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "rule set `{}` is changed too often at the moment; try again",
                self.target.set
            ),
        ))
    }

    /// Applies the edit on a blocking thread, because a large set takes long.
    async fn edited(
        self: &Arc<Self>,
        stored: Option<StoredSet>,
        api: &Arc<ApiState>,
    ) -> Result<EditResult, Problem> {
        let (update, api) = (Arc::clone(self), Arc::clone(api));
        let work = move || {
            let (edit, admin) = (&update.edit, &api.admin);
            let (target, condition) = (&update.target, &update.condition);
            let stored = stored.as_ref();
            edit.apply(target, stored, condition, admin.options, &admin.deployment)
        };
        join(tokio::task::spawn_blocking(work)).await
    }

    async fn try_write(
        &self,
        store: &RuleStore,
        edited: &EditResult,
        seen: Option<&str>,
    ) -> Result<WriteOutcome, StoreError> {
        // Another instance may have written since the set was read.
        let expected = if self.is_unconditional() {
            Precondition::Any
        } else {
            seen.map_or(Precondition::Absent, Precondition::Etag)
        };
        match &edited.set {
            Some(text) if self.edit.has_no_effect(text, seen) => Ok(WriteOutcome::Done {
                before: seen.map(str::to_owned),
            }),
            text => {
                let rule = self.target.rule.iter().map(|rule| format!(" {rule}"));
                let what = format!("{}{}", self.edit.action(), rule.collect::<String>());
                let change = RuleChange {
                    who: &self.caller.name,
                    what: &what,
                };
                let text = text.as_deref();
                store.write(&self.target.set, text, expected, change).await
            }
        }
    }

    fn audit(
        &self,
        api: &ApiState,
        audit: AuditReservation,
        before: Option<&str>,
        edited: &EditResult,
        is_uncertain: bool,
    ) {
        let after = edited.set.as_deref().map(etag_of);
        let change = AuditedChange {
            action: self.edit.action(),
            rule_set: &self.target.set,
            rule: self.target.rule.as_deref(),
            etag_before: before,
            etag_after: after.as_deref(),
            is_uncertain,
            ..AuditedChange::default()
        };
        audit_change(api, audit, (&self.caller, &self.headers), &change, None);
    }

    /// Returns the new set or rule with two additional fields, `changes` and `warnings`.
    fn response(&self, edited: &EditResult) -> Response {
        let changes = changes_json(&edited.changes);
        // Texts and numbers have a form in JSON.
        let warnings = serde_json::to_string(&fault_list(&edited.warnings)).unwrap_or_default();
        let added = format!("\"changes\":{changes},\"warnings\":{warnings}}}");
        let Some(text) = &edited.body else {
            return if prefers_body(&self.headers) {
                json_response(format!("{{{added}"))
            } else {
                StatusCode::NO_CONTENT.into_response()
            };
        };
        // A valid set or rule is an object that has fields, but not these.
        let fields = text.strip_suffix('}').unwrap_or(text);
        let mut response = json_response(format!("{fields},{added}"));
        if edited.created {
            *response.status_mut() = StatusCode::CREATED;
        }
        set_etag(&mut response, &etag_of(text));
        response
    }

    /// Returns the error for a set that does not match the index: a key was written by hand,
    /// or lost.
    fn inconsistent_index(&self) -> Problem {
        let detail = format!(
            "the stored rule set `{}` does not match the index; put or delete the whole set \
             without a condition",
            self.target.set
        );
        Problem::new(StatusCode::CONFLICT, detail)
    }
}

/// Returns whether a set that has changed has a text again that it had before.
async fn is_rollback(store: &RuleStore, set: &str, text: &str) -> bool {
    // Without the history, it is a change like any other.
    let history = store.history(set).await.unwrap_or_default();
    // The first entry is this change, and the text before it was another one.
    let mut earlier = history.iter().skip(1);
    earlier.any(|past| past.text.as_deref() == Some(text))
}

/// Returns whether a client prefers a body where none is needed (RFC 7240).
fn prefers_body(headers: &HeaderMap) -> bool {
    let values = headers
        .get_all("prefer")
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split([',', ';']));
    preferences.any(|it| it.trim().eq_ignore_ascii_case("return=representation"))
}

/// Returns the response for a change that is stored, but cannot become active here.
fn not_active(why: &str) -> Response {
    let detail = format!("stored, but not active yet: {why}");
    Problem::new(StatusCode::ACCEPTED, detail).into_response()
}
