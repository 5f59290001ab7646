//! Decisions over HTTP, in JSON: the routes of all endpoints.

mod admin;
mod audit;
mod blocking_pool;
pub(crate) mod body;
mod check;
mod consume;
mod denials;
mod events;
pub(crate) mod explain;
pub(crate) mod fast_path;
mod forward_auth;
mod health;
mod history;
mod holds;
mod identity;
mod openapi;
mod openfluxgate;
mod overview;
mod query;
mod recent;
mod response;
mod routes;
mod simulate;
mod state;
mod top;
mod usage;
mod validate;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fluxgate_http::Problem;
use http::{Method, StatusCode, Uri};

pub(crate) use state::ApiState;

use crate::console;
use response::json_response;
use state::SharedState;

/// Returns the routes of all endpoints.
pub(crate) fn router(state: &Arc<ApiState>) -> Router {
    Router::new()
        .route("/v1/check", post(check::check))
        .route("/v1/check/batch", post(check::batch))
        .route("/v1/forward_auth", get(forward_auth::forward_auth))
        .route("/v1/consume", post(consume::consume))
        .route("/api/ratelimit/check", post(openfluxgate::check))
        .route("/v1/settle", post(holds::settle))
        .route("/v1/renew", post(holds::renew))
        .route("/v1/release", post(holds::release))
        .route("/v1/cancel", post(holds::cancel))
        .route("/v1/explain", post(explain::explain))
        .route("/v1/validate", post(validate::validate))
        .route("/v1/simulate", post(simulate::simulate))
        .route("/v1/live", get(overview::live))
        .route("/v1/events", get(events::events))
        .route("/v1/top", get(top::top))
        .route("/v1/usage", get(usage::usage))
        .route("/v1/recent", get(recent::recent))
        .route("/v1/history", get(history::history))
        .route("/v1/denials", get(denials::denials))
        .route("/v1/audit", get(audit::audit))
        .route("/v1/instances", get(overview::instances))
        .route("/v1/routes", get(routes::routes))
        .route("/v1/session", get(overview::session))
        .route("/", get(console::redirect))
        .route("/console", get(console::redirect))
        .route("/console/", get(console::serve))
        .route("/console/{*path}", get(console::serve))
        .route(
            "/openapi.json",
            get(async || json_response(openapi::document())),
        )
        .merge(admin::routes())
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(state), refuse_cross_origin))
        .with_state(Arc::clone(state))
}

/// Refuses requests that change something if they come from a page of another site. Read
/// requests pass. So does `/v1/forward_auth`, although it charges: a proxy copies its client's
/// headers there, and the client may be a page of another site.
async fn refuse_cross_origin(State(api): SharedState, request: Request, next: Next) -> Response {
    if request.method().is_safe() || forward_auth::is_path_form(request.uri()) {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    match api.admin.refuse_cross_origin(&head) {
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(problem) => problem.into_response(),
    }
}

/// Answers requests without a route. The router has no pattern for a part of a segment.
async fn not_found(api: SharedState, request: Request) -> Response {
    if forward_auth::is_path_form(request.uri()) {
        return forward_auth::forward_auth(api, request).await;
    }
    let detail = format!("there is nothing at {}", request.uri().path());
    Problem::new(StatusCode::NOT_FOUND, detail).into_response()
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not support {method}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
