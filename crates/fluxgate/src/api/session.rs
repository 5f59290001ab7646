//! `GET /v1/session`: who the caller is, and what this instance offers.

use axum::extract::{Request, State};
use serde_json::json;

use super::response::{ApiResult, json_response};
use super::state::SharedState;
use crate::admin::Role;
use crate::reload::SourceInfo;

/// Returns the caller's role and what the console can offer.
pub(super) async fn session(State(api): SharedState, request: Request) -> ApiResult {
    let (head, _) = request.into_parts();
    let caller = api.admin.authorize(&head, Role::Viewer)?;
    let source = &api.admin.reloader.source;
    let session = json!({
        "name": caller.name,
        "role": caller.role.name(),
        "tokens": api.admin.has_tokens(),
        "demo": matches!(source, SourceInfo::Fixed),
        "version": env!("CARGO_PKG_VERSION"),
        "instance": api.instances.id(),
        "source": source.name(),
        "writable": matches!(source, SourceInfo::Redis(_)),
        "records": api.engine.telemetry().is_recording(),
        "identities": !api.admin.hides_identities,
    });
    Ok(json_response(session.to_string()))
}
