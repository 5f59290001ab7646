//! Looking at rules and state, and changing them.

mod conditions;
mod fields;
mod give_back;
mod list;
mod state;
mod stored;

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use tokio::task::JoinHandle;

use super::check::JSON;
use super::{Api, body};
use crate::http::Problem;

/// Where what is answered.
pub(super) fn routes() -> Router<Arc<Api>> {
    let set = get(stored::get_set)
        .put(stored::put_set)
        .delete(stored::delete_set);
    let rule = get(stored::get_rule)
        .put(stored::put_rule)
        .delete(stored::delete_rule);
    Router::new()
        .route("/v1/refund", post(state::refund))
        .route("/v1/give_back", post(give_back::give_back))
        .route("/v1/reset", post(state::reset))
        .route("/v1/state", get(state::state))
        .route("/v1/rule_sets", get(list::list))
        .route("/v1/rule_sets/{set}", set)
        .route("/v1/rule_sets/{set}/rules/{rule}", rule)
        .route(
            "/v1/rule_sets/{set}/rules/{rule}/enable",
            post(stored::enable),
        )
        .route(
            "/v1/rule_sets/{set}/rules/{rule}/disable",
            post(stored::disable),
        )
}

/// Does all of it, even if the client goes away meanwhile: what was changed must
/// be noted, too.
async fn to_its_end(
    work: impl Future<Output = Result<Response, Problem>> + Send + 'static,
) -> Result<Response, Problem> {
    done(tokio::spawn(work)).await
}

/// What came of a task.
async fn done<T>(task: JoinHandle<Result<T, Problem>>) -> Result<T, Problem> {
    task.await.unwrap_or_else(|error| {
        let detail = format!("this could not be done: {error}");
        Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
    })
}

/// An answer of JSON.
fn json(text: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(text.into());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
