//! `GET /v1/routes`: the routes of the gateway, and how their upstreams are doing.

use axum::extract::State;
use fluxgate_gateway::UpstreamStatus;
use http::request::Parts;
use serde_json::{Value, json};

use super::response::{ApiResult, json_response};
use super::state::SharedState;
use crate::admin::Role;

/// Returns the routes of this instance in their order, with the counts of the last minute.
pub(super) async fn routes(State(api): SharedState, head: Parts) -> ApiResult {
    api.admin.authorize(&head, Role::Viewer)?;
    let status = api.gateway.as_ref().map(|gateway| gateway.status());
    let routes = status.unwrap_or_default();
    let routes: Vec<_> = routes
        .iter()
        // Requests without a route are counted, too.
        .filter(|route| !route.id.is_empty())
        .map(|route| {
            let upstreams: Vec<_> = route.upstreams.iter().map(upstream_json).collect();
            json!({ "id": route.id, "upstreams": upstreams })
        })
        .collect();
    Ok(json_response(json!({ "routes": routes }).to_string()))
}

fn upstream_json(upstream: &UpstreamStatus) -> Value {
    json!({
        "url": upstream.url,
        "health": if upstream.out.is_some() { "out" } else { "up" },
        "reason": upstream.out,
        "requests": upstream.recent_requests,
        "failures": upstream.recent_failures,
    })
}
