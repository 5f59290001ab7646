//! `GET /v1/session`, `/v1/live` and `/v1/instances`: what the console shows of the service.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures_util::stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use serde_json::json;

use super::openapi::has_call;
use super::response::{ApiResult, compressed_json, json_response};
use super::state::SharedState;
use crate::admin::Role;

pub(super) const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Returns the caller's role and what the console can offer.
pub(super) async fn session(State(api): SharedState, head: Parts) -> ApiResult {
    let caller = api.admin.authorize(&head, Role::Viewer)?;
    let source = &api.admin.reloader.source;
    let session = json!({
        "name": caller.name,
        "role": caller.role.name(),
        "tokens": api.admin.has_tokens(),
        "demo": source.kind() == "demo",
        "version": env!("CARGO_PKG_VERSION"),
        "instance": api.instances.id(),
        "source": source.kind(),
        "writable": source.rule_store().is_some(),
        "records": api.engine.telemetry().is_recording(),
        "identities": !api.admin.hides_identities,
        "history": api.history.as_ref().map(|history| history.keep_ms()),
        "routes": has_call("/v1/routes"),
    });
    Ok(json_response(session.to_string()))
}

/// Sends server-sent events until the client disconnects, loses its permission or the service
/// closes.
pub(super) async fn live(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let viewer = api.live.add_viewer();
    let events = stream::unfold((viewer, api, head), async |(mut viewer, api, head)| {
        let event = viewer.next(&api.closing).await?;
        // Its token may have been revoked.
        if !api.admin.is_still_authorized(&head, Role::Viewer) {
            return None;
        }
        Some((Ok::<_, Infallible>(event), (viewer, api, head)))
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENT_STREAM);
    headers.insert(CACHE_CONTROL, NO_STORE);
    Ok(response)
}

/// Returns this instance and those that share its Redis.
pub(super) async fn instances(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let list = api.instances.list(api.sources()).await;
    Ok(compressed_json(&head.headers, list.to_string()))
}
