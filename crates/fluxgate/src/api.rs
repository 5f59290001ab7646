//! Decisions over HTTP, in JSON.

mod admin;
mod blocking;
mod body;
mod check;
mod consume;
mod decision_json;
pub(crate) mod explain;
pub(crate) mod fast_path;
mod fault_json;
mod forward_auth;
mod health;
mod holds;
mod identity;
mod instances;
mod live;
mod pseudonyms;
mod query;
mod recent;
mod session;
mod simple_request;
mod simulate;
mod top;
mod validate;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fluxgate_core::{BandState, LimiterError};
use fluxgate_http::Problem;
use fluxgate_tower::HeaderFamilies;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode, Uri};
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::console;
use crate::engine::{Engine, EngineError, Filters};
use crate::instances::Instances;
use crate::live::LiveFeed;
use blocking::BlockingWork;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The OpenAPI document. Tests compare it with the service.
static OPENAPI: LazyLock<String> = LazyLock::new(|| {
    let document = include_str!("api/openapi.json");
    document.replacen(
        "\"VERSION\"",
        concat!("\"", env!("CARGO_PKG_VERSION"), "\""),
        1,
    )
});

/// The state that the handlers share.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) engine: Arc<Engine>,
    /// Authorizes admin calls.
    admin: Admin,
    /// The filters of `/v1/forward_auth`.
    filters: Filters,
    headers: HeaderFamilies,
    /// Validates rules that are written.
    validation: BlockingWork,
    /// Validates, tries and formats rules for those who only read, so that a write need not
    /// wait for them.
    reading: BlockingWork,
    live: LiveFeed,
    instances: Instances,
    /// Cancelled when the service shuts down.
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
            validation: BlockingWork::default(),
            reading: BlockingWork::default(),
            live: LiveFeed::default(),
            instances: Instances::default(),
            closing,
        })
    }

    /// Reloads the admin tokens whenever they change. Never returns; called once for all
    /// cores.
    pub(crate) async fn keep_tokens_current(&self) {
        self.admin.keep_current().await;
    }

    /// Publishes what happens second by second, until the service closes.
    pub(crate) async fn run_live(&self) {
        self.live.run(&self.engine, &self.closing).await;
    }

    /// Tells other instances that this one is alive, until the service closes.
    pub(crate) async fn keep_alive(&self) {
        let Self {
            engine,
            live,
            instances,
            closing,
            ..
        } = self;
        instances.keep_alive(engine, live, closing).await;
    }

    /// Returns the routes of all endpoints.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/v1/check", post(check::check))
            .route("/v1/check/batch", post(check::batch))
            .route("/v1/forward_auth", get(forward_auth::forward_auth))
            .route("/v1/consume", post(consume::consume))
            .route("/v1/settle", post(holds::settle))
            .route("/v1/renew", post(holds::renew))
            .route("/v1/release", post(holds::release))
            .route("/v1/cancel", post(holds::cancel))
            .route("/v1/explain", post(explain::explain))
            .route("/v1/validate", post(validate::validate))
            .route("/v1/simulate", post(simulate::simulate))
            .route("/v1/live", get(live::live))
            .route("/v1/top", get(top::top))
            .route("/v1/recent", get(recent::recent))
            .route("/v1/instances", get(instances::instances))
            .route("/v1/session", get(session::session))
            .route("/", get(console::redirect))
            .route("/console", get(console::redirect))
            .route("/console/", get(console::serve))
            .route("/console/{*path}", get(console::serve))
            .route(
                "/openapi.json",
                get(async || json_response(OPENAPI.as_str())),
            )
            .merge(admin::routes())
            .route("/livez", get(health::livez))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(health::metrics))
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(from_fn_with_state(Arc::clone(self), refuse_cross_origin))
            .with_state(Arc::clone(self))
    }
}

/// Refuses requests that change something if they come from a page of another site. Read
/// requests pass. So does `GET /v1/forward_auth`, although it charges: a proxy copies its
/// client's headers there, and pages cannot send the headers that it needs.
async fn refuse_cross_origin(
    State(api): State<Arc<Api>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    match api.admin.refuse_cross_origin(&head) {
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(problem) => problem.into_response(),
    }
}

fn json_response(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Returns the units of a band that are out on lease; `None` if its units are not leased.
fn units_on_lease(state: &BandState) -> Option<u64> {
    state.band.lease().map(|_| state.on_lease)
}

async fn not_found(uri: Uri) -> Problem {
    let detail = format!("there is nothing at {}", uri.path());
    Problem::new(StatusCode::NOT_FOUND, detail)
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not support {method}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let status = match &error {
            EngineError::Call(LimiterError::UnknownRuleSet(_))
            | EngineError::Call(LimiterError::UnknownRule { .. }) => StatusCode::NOT_FOUND,
            EngineError::Call(LimiterError::NotALimit { .. }) => StatusCode::BAD_REQUEST,
            EngineError::Call(LimiterError::Identity(why)) => {
                return Self::bad_request(format!("`identity`: {why}"));
            }
            // The rules are not loaded yet, or the store failed.
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}
