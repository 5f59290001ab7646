//! `GET /v1/history`: how many decisions there were, by rule, outcome and time.

use std::sync::Arc;

use axum::extract::State;
use fluxgate_http::Problem;
use http::StatusCode;
use http::request::Parts;
use serde_json::{Value, json};

use super::query;
use super::response::{ApiResult, compressed_json};
use super::state::{ApiState, SharedState};
use crate::admin::Role;
use crate::history::{CountQuery, CountReply, History, HistoryError};

/// Returns the counts of a range of time.
pub(super) async fn history(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let query = read_query(head.uri.query().unwrap_or_default())?;
    let reply = history_of(&api)?.counts(query).await?;
    Ok(compressed_json(&head.headers, to_json(&reply)))
}

/// Returns the record, if it is kept.
pub(super) fn history_of(api: &ApiState) -> Result<&Arc<History>, Problem> {
    api.history.as_ref().ok_or_else(|| {
        let detail = "nothing is recorded: `history` is false in the config";
        Problem::new(StatusCode::NOT_FOUND, detail)
    })
}

impl From<HistoryError> for Problem {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Request(message) => Self::bad_request(message),
            HistoryError::Store(_) | HistoryError::Closing => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
        }
    }
}

fn read_query(query: &str) -> Result<CountQuery, Problem> {
    let mut wanted = CountQuery::default();
    for field in query::fields(query) {
        let (name, value) = field?;
        match &*name {
            "rule_set" => wanted.rule_set = query::name(value),
            "rule" => wanted.rule = query::name(value),
            "from" => wanted.from = Some(query::millis("from", &value)?),
            "to" => wanted.to = Some(query::millis("to", &value)?),
            _ => return Err(query::unknown(&name)),
        }
    }
    Ok(wanted)
}

fn to_json(reply: &CountReply) -> String {
    let series = reply.series.iter().map(|series| {
        json!({
            "rule_set": name_or_null(&series.rule.rule_set),
            "rule": name_or_null(&series.rule.rule),
            "outcome": series.outcome,
            "values": series.values,
        })
    });
    let changes = reply.changes.iter().map(|change| {
        json!({
            "at_ms": change.at_ms,
            "rule_set": change.rule_set,
            "revision": name_or_null(&change.revision),
            "who": name_or_null(&change.who),
        })
    });
    let decisions = reply
        .decisions
        .iter()
        .map(|series| json!({ "outcome": series.outcome, "values": series.values }));
    json!({
        "decisions": decisions.collect::<Vec<_>>(),
        "step_s": reply.step.seconds(),
        "from_ms": reply.from_ms,
        "series": series.collect::<Vec<_>>(),
        "changes": changes.collect::<Vec<_>>(),
    })
    .to_string()
}

/// Returns a name, or null for an empty one.
pub(super) fn name_or_null(name: &str) -> Value {
    if name.is_empty() {
        Value::Null
    } else {
        name.into()
    }
}
