//! The OpenAPI document. Tests compare it with the service.

use std::sync::LazyLock;

static OPENAPI: LazyLock<String> = LazyLock::new(|| {
    let document = include_str!("openapi.json");
    document.replacen(
        "\"VERSION\"",
        concat!("\"", env!("CARGO_PKG_VERSION"), "\""),
        1,
    )
});

/// Returns the document.
pub(super) fn document() -> &'static str {
    &OPENAPI
}

/// Returns whether this version has a call.
pub(super) fn has_call(path: &str) -> bool {
    OPENAPI.contains(&format!("\"{path}\""))
}
