//! `GET /openapi.json`.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

use super::check::JSON;

/// What is answered where. Tests hold it against the service.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let document = include_str!("openapi.json");
    document.replacen(
        "\"VERSION\"",
        concat!("\"", env!("CARGO_PKG_VERSION"), "\""),
        1,
    )
});

/// The document.
pub(super) async fn document() -> Response {
    let mut response = DOCUMENT.as_str().into_response();
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
