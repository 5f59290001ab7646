//! Responses that all handlers share: JSON, and errors of the engine as problems.

use axum::body::Body;
use axum::response::Response;
use fluxgate_core::LimiterError;
use fluxgate_http::Problem;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use crate::engine::EngineError;

/// The answer of a handler.
pub(super) type ApiResult = Result<Response, Problem>;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) fn json_response(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
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
