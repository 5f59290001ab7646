//! Decisions over HTTP, in JSON.

mod admin;
mod body;
mod check;
mod consume;
mod decision_json;
pub(crate) mod fast_path;
mod forward_auth;
mod health;
mod identity;
mod openapi;
mod problem;
mod query;
mod simple_check;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fluxgate_tower::HeaderFamilies;
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::engine::{Engine, Filters};

/// What the answers need.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) engine: Arc<Engine>,
    /// Who may change things.
    admin: Admin,
    /// What proxies ask for their clients by.
    filters: Filters,
    headers: HeaderFamilies,
    /// Closes when the service is to end.
    closing: CancellationToken,
}

impl Api {
    pub(crate) fn new(
        engine: Arc<Engine>,
        admin: Admin,
        filters: Filters,
        closing: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine,
            admin,
            filters: filters.trusting_their_peers(),
            headers: HeaderFamilies::default(),
            closing,
        })
    }

    /// Lets in who may come in by now; for ever, and once for all cores.
    pub(crate) async fn keep_current(&self) {
        self.admin.keep_current().await;
    }

    /// Where what is answered.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/v1/check", post(check::check))
            .route("/v1/check/batch", post(check::batch))
            .route("/v1/forward_auth", get(forward_auth::forward_auth))
            .route("/v1/consume", post(consume::consume))
            .route("/openapi.json", get(openapi::document))
            .merge(admin::routes())
            .route("/livez", get(health::livez))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(health::metrics))
            .fallback(problem::no_such_path)
            .method_not_allowed_fallback(problem::no_such_method)
            .layer(from_fn_with_state(Arc::clone(self), refuse_other_sites))
            .with_state(Arc::clone(self))
    }
}

/// Refuses what changes something and comes from a page of another site. What only looks
/// passes, and so does `GET /v1/forward_auth`, although it charges: a proxy passes its
/// client's headers on there, and pages cannot send the headers that it needs.
async fn refuse_other_sites(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    match api.admin.refuse_other_sites(&head) {
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(problem) => problem.into_response(),
    }
}
