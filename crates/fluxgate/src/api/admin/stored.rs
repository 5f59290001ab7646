//! Endpoints that read and change the rule sets and rules in Redis.

mod access;
mod edit;
mod update;

use std::future::ready;
use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::IntoResponse;
use fluxgate_http::Problem;
use fluxgate_redis::etag_of;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body::Body;
use serde_json::json;

use super::conditions::Condition;
use crate::admin::{Caller, Role};
use crate::api::response::{ApiResult, json_response};
use crate::api::state::{ApiState, SharedState};
use crate::api::{body, query};
use crate::events::{RulesAction, list_of_faults};
use crate::reload::to_json;
use access::{
    no_such_revision, no_such_rule, no_such_set, past_set, read, set_etag, store_failed, store_of,
};
use edit::{Edit, EditableRuleSet};
use update::Update;

type RulePath = Path<(String, String)>;

/// Returns a stored set, or a revision of it.
pub(super) async fn get_set(
    State(api): SharedState,
    Path(set): Path<String>,
    head: Parts,
) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let store = store_of(&api)?;
    let stored = match read_revision(head.uri.query().unwrap_or_default())? {
        None => {
            let stored = read(store, &set).await?;
            stored.ok_or_else(|| no_such_set(&set))?
        }
        Some(revision) => {
            let past = past_set(store, &set, &revision).await?;
            past.ok_or_else(|| no_such_revision(&set, &revision))?
        }
    };
    respond(&head, &stored.etag, &stored.text)
}

/// Reads the query of a call that may ask for a revision.
fn read_revision(query: &str) -> Result<Option<String>, Problem> {
    let mut revision = None;
    for field in query::fields(query) {
        let (name, value) = field?;
        match &*name {
            "revision" => revision = Some(value),
            _ => return Err(query::unknown(&name)),
        }
    }
    Ok(revision)
}

pub(super) async fn get_rule(
    State(api): SharedState,
    Path((set, rule)): RulePath,
    head: Parts,
) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let stored = read(store_of(&api)?, &set).await?;
    let rules = EditableRuleSet::read(&set, stored.as_ref())?;
    let found = rules.get(&rule).ok_or_else(|| no_such_rule(&set, &rule))?;
    let text = to_json(found);
    respond(&head, &etag_of(&text), &text)
}

/// Returns a stored set as YAML, without the fields that have a default.
pub(super) async fn get_text(
    State(api): SharedState,
    Path(set): Path<String>,
    head: Parts,
) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let stored = read(store_of(&api)?, &set).await?;
    let stored = stored.ok_or_else(|| no_such_set(&set))?;
    let text = edit::yaml_of(&set, &stored.text, api.admin.options);
    let etag = format!("\"{}\"", stored.etag);
    let mut response = json_response(json!({ "text": text, "etag": etag }).to_string());
    set_etag(&mut response, &stored.etag);
    Ok(response)
}

/// Returns the last changes of a stored set, the newest first.
pub(super) async fn get_history(
    State(api): SharedState,
    Path(set): Path<String>,
    head: Parts,
) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let changes = store_of(&api)?.history(&set).await.map_err(store_failed)?;
    let options = api.admin.options;
    let work = move || {
        let changes = changes.into_iter().map(|change| {
            let text = change.text.as_deref();
            json!({
                "at_ms": change.at_ms,
                "who": change.who,
                "what": change.what,
                "revision": text.map(etag_of),
                "etag": text.map(|text| format!("\"{}\"", etag_of(text))),
                "text": text.map(|text| edit::yaml_of(&set, text, options)),
            })
        });
        let changes: Vec<_> = changes.collect();
        Ok(json!({ "changes": changes }).to_string())
    };
    Ok(json_response(api.read_pool.run(work).await?))
}

pub(super) async fn put_set(
    State(api): SharedState,
    Path(set): Path<String>,
    request: Request,
) -> ApiResult {
    let (head, body) = request.into_parts();
    let write = Write::authorize(&api, &head, (&set, None), Role::Admin)?;
    let edit = async {
        store_of(&api)?;
        let (is_yaml, untyped) = (body::is_yaml(&head.headers), HeaderMap::new());
        let headers = if is_yaml { &untyped } else { &head.headers };
        let body = body::read(headers, body).await?;
        let (name, options) = (set.clone(), api.admin.options);
        let parse = move || {
            if is_yaml {
                edit::parse_yaml_set(&name, &body, options)
            } else {
                edit::parse_set(&name, &body, options)
            }
        };
        Ok::<_, Problem>(Edit::Replace(api.write_pool.run(parse).await?))
    };
    write.run(edit).await
}

pub(super) async fn put_rule(
    State(api): SharedState,
    Path((set, rule)): RulePath,
    request: Request,
) -> ApiResult {
    let (head, body) = request.into_parts();
    let write = Write::authorize(&api, &head, (&set, Some(&rule)), Role::Admin)?;
    let edit = async {
        store_of(&api)?;
        let body = body::read(&head.headers, body).await?;
        let (names, options) = ((set.clone(), rule.clone()), api.admin.options);
        let parse = move || edit::parse_rule(&names.0, &names.1, &body, options);
        Ok::<_, Problem>(Edit::PutRule(api.write_pool.run(parse).await?))
    };
    write.run(edit).await
}

pub(super) async fn delete_set(
    State(api): SharedState,
    Path(set): Path<String>,
    head: Parts,
) -> ApiResult {
    let write = Write::authorize(&api, &head, (&set, None), Role::Admin)?;
    write.run(ready(Ok(Edit::Delete))).await
}

pub(super) async fn delete_rule(
    State(api): SharedState,
    Path((set, rule)): RulePath,
    head: Parts,
) -> ApiResult {
    let write = Write::authorize(&api, &head, (&set, Some(&rule)), Role::Admin)?;
    write.run(ready(Ok(Edit::DeleteRule))).await
}

pub(super) async fn enable(api: SharedState, names: RulePath, request: Request) -> ApiResult {
    set_enabled(api, names, request, true).await
}

pub(super) async fn disable(api: SharedState, names: RulePath, request: Request) -> ApiResult {
    set_enabled(api, names, request, false).await
}

async fn set_enabled(
    State(api): SharedState,
    Path((set, rule)): RulePath,
    request: Request,
    is_enabled: bool,
) -> ApiResult {
    let (head, body) = request.into_parts();
    let has_body = !body.is_end_stream();
    let write = Write::authorize(&api, &head, (&set, Some(&rule)), Role::Operator)?;
    let checked = if has_body {
        body::check_type(&head.headers)
    } else {
        Ok(())
    };
    let edit = checked.map(|()| Edit::SetEnabled(is_enabled));
    write.run(ready(edit)).await
}

/// A write by a caller who may write.
struct Write<'w> {
    api: &'w Arc<ApiState>,
    head: &'w Parts,
    caller: Caller,
    /// The set, and the rule if only one is written.
    target: (&'w str, Option<&'w str>),
}

impl<'w> Write<'w> {
    fn authorize(
        api: &'w Arc<ApiState>,
        head: &'w Parts,
        target: (&'w str, Option<&'w str>),
        role: Role,
    ) -> Result<Self, Problem> {
        let caller = api.admin.authorize(head, role)?;
        Ok(Self {
            api,
            head,
            caller,
            target,
        })
    }

    /// Reads the edit and makes it. If it is refused, that is an event.
    async fn run(self, edit: impl Future<Output = Result<Edit, Problem>>) -> ApiResult {
        let written = self.make(edit).await;
        if let Err(problem) = &written {
            self.record_refusal(problem);
        }
        written
    }

    async fn make(&self, edit: impl Future<Output = Result<Edit, Problem>>) -> ApiResult {
        let edit = edit.await?;
        let (set, rule) = self.target;
        let (set, rule) = (set.to_owned(), rule.map(str::to_owned));
        let update = Update::new(self.head, self.caller.clone(), set, rule, edit)?;
        update.run(Arc::clone(self.api)).await
    }

    /// Records that the caller was refused. What does not exist cannot be changed: that is no refusal,
    /// and neither is a failure of the service.
    fn record_refusal(&self, problem: &Problem) {
        let status = problem.status();
        if !status.is_client_error() || status == StatusCode::NOT_FOUND {
            return;
        }
        let (set, rule) = self.target;
        let rule = rule.map(|rule| format!("rule {rule}: "));
        let why = match problem.faults() {
            [] => problem.detail().to_owned(),
            faults => list_of_faults(faults),
        };
        let details = format!("{}{why}", rule.unwrap_or_default());
        let (events, who) = (&self.api.events, &self.caller.name);
        events.record_rule_change(RulesAction::Refused, set, who, details);
    }
}

/// Returns the text, or 304 if the client already has it.
fn respond(head: &Parts, etag: &str, text: &str) -> ApiResult {
    let condition = Condition::from_headers(&head.headers)?;
    let is_if_none_match = matches!(condition, Condition::NoneOf(_) | Condition::Absent);
    let mut response = match condition.check(Some(etag)) {
        Ok(()) => json_response(text.to_owned()),
        Err(_) if is_if_none_match => StatusCode::NOT_MODIFIED.into_response(),
        Err(problem) => return Err(problem),
    };
    set_etag(&mut response, etag);
    Ok(response)
}
