//! Problem documents for errors of the engine and for unknown paths.

use fluxgate_core::LimiterError;
use http::{Method, StatusCode, Uri};

use crate::engine::EngineError;
use crate::http::Problem;

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let status = match &error {
            EngineError::Call(LimiterError::UnknownRuleSet(_))
            | EngineError::Call(LimiterError::UnknownRule { .. }) => StatusCode::NOT_FOUND,
            EngineError::Call(LimiterError::Identity(why)) => {
                return Self::bad_request(format!("`identity`: {why}"));
            }
            // The rules are not loaded yet, or the store failed.
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

pub(super) async fn no_such_path(uri: Uri) -> Problem {
    let detail = format!("there is nothing at {}", uri.path());
    Problem::new(StatusCode::NOT_FOUND, detail)
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
