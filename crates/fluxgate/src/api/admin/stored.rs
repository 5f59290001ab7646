//! Rule sets and rules that are stored in Redis: to read and to change.

mod access;
mod edit;
mod job;

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use fluxgate_redis::etag_of;
use http::StatusCode;
use http::request::Parts;
use http_body::Body;

use super::conditions::Condition;
use super::{Api, body, json};
use crate::admin::Role;
use crate::http::Problem;
use access::{no_such_rule, no_such_set, read, set_etag, store_of};
use edit::{Edit, Rules};
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

/// Returns the text, or 304 if the client has it already.
fn shown(head: &Parts, etag: &str, text: &str) -> Result<Response, Problem> {
    let condition = Condition::of(&head.headers)?;
    let is_read = matches!(condition, Condition::NoneOf(_) | Condition::Absent);
    let mut response = match condition.holds(Some(etag)) {
        true => json(text.to_owned()),
        false if is_read => StatusCode::NOT_MODIFIED.into_response(),
        false => return Err(condition.check(Some(etag)).err().unwrap_or_else(never)),
    };
    set_etag(&mut response, etag);
    Ok(response)
}

fn never() -> Problem {
    Problem::new(
        StatusCode::PRECONDITION_FAILED,
        "the condition does not hold",
    )
}
