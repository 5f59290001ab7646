//! Access to the stored rules, and responses that several endpoints share.

use axum::response::Response;
use fluxgate_http::Problem;
use fluxgate_redis::{RuleStore, StoredSet, etag_of};
use http::header::{ALLOW, ETAG};
use http::{HeaderValue, StatusCode};

use crate::api::state::ApiState;
use crate::engine::EngineError;

pub(super) async fn read(store: &RuleStore, set: &str) -> Result<Option<StoredSet>, Problem> {
    store.get(set).await.map_err(store_failed)
}

/// Returns the set as it was after a past change, if the history still has it.
pub(super) async fn past_set(
    store: &RuleStore,
    set: &str,
    revision: &str,
) -> Result<Option<StoredSet>, Problem> {
    let changes = store.history(set).await.map_err(store_failed)?;
    let texts = changes.into_iter().filter_map(|change| change.text);
    let mut sets = texts.map(|text| StoredSet {
        etag: etag_of(&text),
        text,
    });
    Ok(sets.find(|set| set.etag == revision))
}

/// Returns the rule store, or an error if the rules do not come from Redis.
pub(super) fn store_of(api: &ApiState) -> Result<&RuleStore, Problem> {
    let source = &api.admin.reloader.source;
    source.rule_store().ok_or_else(|| {
        let detail = format!("the rules come from {source}; they are read and written there");
        if source.is_server() {
            return Problem::new(StatusCode::CONFLICT, detail);
        }
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail);
        // Empty: no method is allowed with this configuration.
        problem.with_header(ALLOW, HeaderValue::from_static(""))
    })
}

pub(super) fn store_failed(error: fluxgate_core::StoreError) -> Problem {
    EngineError::Call(error.into()).into()
}

pub(super) fn no_such_set(set: &str) -> Problem {
    let detail = format!("there is no rule set `{set}`");
    Problem::new(StatusCode::NOT_FOUND, detail)
}

pub(super) fn no_such_revision(set: &str, revision: &str) -> Problem {
    let detail = format!("the history of rule set `{set}` has no revision `{revision}`");
    Problem::new(StatusCode::NOT_FOUND, detail)
}

pub(super) fn no_such_rule(set: &str, rule: &str) -> Problem {
    let detail = format!("there is no rule `{rule}` in rule set `{set}`");
    Problem::new(StatusCode::NOT_FOUND, detail)
}

pub(super) fn set_etag(response: &mut Response, etag: &str) {
    if let Ok(value) = HeaderValue::from_str(&format!("\"{etag}\"")) {
        response.headers_mut().insert(ETAG, value);
    }
}
