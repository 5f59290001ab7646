//! `GET /livez`, `/readyz` and `/metrics`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fluxgate_http::Problem;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use super::state::SharedState;

const PROMETHEUS: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Reports that the process runs.
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// Reports whether the service can answer checks.
pub(super) async fn readyz(State(api): SharedState) -> Result<&'static str, Problem> {
    let reason = if api.engine.is_stopping() {
        "the service is shutting down"
    } else if api.engine.rules().is_none() {
        "the rules are not loaded yet"
    } else if api.engine.awaits_store() {
        "the store has not answered yet"
    } else {
        return Ok("ok\n");
    };
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, reason))
}

/// Returns the metrics in the Prometheus text format.
pub(super) async fn metrics(State(api): SharedState) -> Response {
    let text = api
        .engine
        .telemetry()
        .prometheus_text(&api.metric_sources());
    let mut response = text.into_response();
    response.headers_mut().insert(CONTENT_TYPE, PROMETHEUS);
    response
}
