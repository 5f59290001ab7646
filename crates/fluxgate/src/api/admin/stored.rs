//! Rule sets and rules where they can be written: in Redis.

mod edit;
mod job;

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use fluxgate_redis::{RuleStore, StoredSet, etag_of};
use http::header::{ALLOW, ETAG};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use http_body::Body;

use super::conditions::Condition;
use super::{Api, body, done, json, to_its_end};
use crate::admin::Role;
use crate::engine::EngineError;
use crate::http::Problem;
use crate::reload::Origin;
use edit::{Edit, Edited, Rules};
use job::Job;

type Names = Path<(String, String)>;

pub(super) async fn get_set(
    State(api): State<Arc<Api>>,
    Path(set): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, _) = request.into_parts();
    api.admin.admit(&head, Role::Viewer)?;
    let stored = read(store_of(&api)?, &set).await?;
    let stored = stored.ok_or_else(|| no_such_set(&set))?;
    shown(&head, &stored.etag, &stored.text)
}

pub(super) async fn get_rule(
    State(api): State<Arc<Api>>,
    Path((set, rule)): Names,
    request: Request,
) -> Result<Response, Problem> {
    let (head, _) = request.into_parts();
    api.admin.admit(&head, Role::Viewer)?;
    let stored = read(store_of(&api)?, &set).await?;
    let rules = Rules::read(&set, stored.as_ref())?;
    let text = rules.get(&rule).ok_or_else(|| no_such_rule(&set, &rule))?;
    let text = text.to_string();
    shown(&head, &etag_of(&text), &text)
}

pub(super) async fn put_set(
    State(api): State<Arc<Api>>,
    Path(set): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let caller = api.admin.admit_change(&head, Role::Admin)?;
    store_of(&api)?;
    let body = body::read(body).await?;
    let new = edit::whole_set(&set, &body, api.admin.options)?;
    let job = Job::new(
        &head,
        caller,
        "put rule set",
        (set, None),
        Edit::Replace(new),
    )?;
    job.run(api).await
}

pub(super) async fn put_rule(
    State(api): State<Arc<Api>>,
    Path((set, rule)): Names,
    request: Request,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let caller = api.admin.admit_change(&head, Role::Admin)?;
    store_of(&api)?;
    let body = body::read(body).await?;
    let new = edit::one_rule(&set, &rule, &body, api.admin.options)?;
    let about = (set, Some(rule));
    let job = Job::new(&head, caller, "put rule", about, Edit::PutRule(new))?;
    job.run(api).await
}

pub(super) async fn delete_set(
    State(api): State<Arc<Api>>,
    Path(set): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, _) = request.into_parts();
    let caller = api.admin.admit_change(&head, Role::Admin)?;
    let job = Job::new(&head, caller, "delete rule set", (set, None), Edit::Delete)?;
    job.run(api).await
}

pub(super) async fn delete_rule(
    State(api): State<Arc<Api>>,
    Path((set, rule)): Names,
    request: Request,
) -> Result<Response, Problem> {
    let (head, _) = request.into_parts();
    let caller = api.admin.admit_change(&head, Role::Admin)?;
    let about = (set, Some(rule));
    let job = Job::new(&head, caller, "delete rule", about, Edit::DeleteRule)?;
    job.run(api).await
}

pub(super) async fn enable(
    api: State<Arc<Api>>,
    names: Names,
    request: Request,
) -> Result<Response, Problem> {
    switch(api, names, request, true).await
}

pub(super) async fn disable(
    api: State<Arc<Api>>,
    names: Names,
    request: Request,
) -> Result<Response, Problem> {
    switch(api, names, request, false).await
}

async fn switch(
    State(api): State<Arc<Api>>,
    Path((set, rule)): Names,
    request: Request,
    on: bool,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let has_body = !body.is_end_stream();
    let caller = api.admin.admit_switch(&head, has_body, Role::Operator)?;
    let what = match on {
        true => "enable rule",
        false => "disable rule",
    };
    let about = (set, Some(rule));
    Job::new(&head, caller, what, about, Edit::Switch(on))?
        .run(api)
        .await
}

async fn read(store: &RuleStore, set: &str) -> Result<Option<StoredSet>, Problem> {
    store.get(set).await.map_err(failed)
}

/// Where rules are written, if they are.
fn store_of(api: &Api) -> Result<&RuleStore, Problem> {
    match &api.admin.reloader.origin {
        Origin::Redis(store) => Ok(store),
        origin => {
            let detail = format!("the rules come from {origin}; they are read and written there");
            let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail);
            // Empty: no method at all, as this service is configured.
            Err(problem.with_header(ALLOW, HeaderValue::from_static("")))
        }
    }
}

/// What is there, or only that it is as the client knows it.
fn shown(head: &Parts, etag: &str, text: &str) -> Result<Response, Problem> {
    let condition = Condition::of(&head.headers)?;
    let is_read = matches!(condition, Condition::NoneOf(_) | Condition::Absent);
    let mut response = match condition.holds(Some(etag)) {
        true => json(text.to_owned()),
        false if is_read => StatusCode::NOT_MODIFIED.into_response(),
        false => return Err(condition.check(Some(etag)).err().unwrap_or_else(never)),
    };
    tag(&mut response, etag);
    Ok(response)
}

fn answer(edited: &Edited) -> Response {
    let Some(text) = &edited.shown else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let mut response = json(text.clone());
    if edited.created {
        *response.status_mut() = StatusCode::CREATED;
    }
    tag(&mut response, &etag_of(text));
    response
}

fn tag(response: &mut Response, etag: &str) {
    if let Ok(value) = HeaderValue::from_str(&format!("\"{etag}\"")) {
        response.headers_mut().insert(ETAG, value);
    }
}

/// It is stored, but something keeps it from being put in force here.
fn not_in_force(why: &str) -> Response {
    let detail = format!("stored, but not in force yet: {why}");
    Problem::new(StatusCode::ACCEPTED, detail).into_response()
}

fn failed(error: fluxgate_core::StoreError) -> Problem {
    EngineError::Call(error.into()).into()
}

fn no_such_set(set: &str) -> Problem {
    let detail = format!("there is no rule set `{set}`");
    Problem::new(StatusCode::NOT_FOUND, detail)
}

fn no_such_rule(set: &str, rule: &str) -> Problem {
    let detail = format!("there is no rule `{rule}` in rule set `{set}`");
    Problem::new(StatusCode::NOT_FOUND, detail)
}

fn never() -> Problem {
    Problem::new(
        StatusCode::PRECONDITION_FAILED,
        "the condition does not hold",
    )
}
