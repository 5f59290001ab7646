//! `GET /v1/instances`: the instances that share the store.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use fluxgate_http::Problem;

use super::response::json_response;
use super::state::ApiState;
use crate::admin::Role;

/// Returns this instance and those that share its Redis.
pub(super) async fn instances(
    State(api): State<Arc<ApiState>>,
    request: Request,
) -> Result<Response, Problem> {
    let (head, _) = request.into_parts();
    api.admin.authorize(&head, Role::Viewer)?;
    let list = api.instances.list(&api.engine, &api.live).await;
    Ok(json_response(list.to_string()))
}
