//! `GET /v1/instances`: the instances that share the store.

use axum::extract::{Request, State};

use super::response::{ApiResult, json_response};
use super::state::SharedState;
use crate::admin::Role;

/// Returns this instance and those that share its Redis.
pub(super) async fn instances(State(api): SharedState, request: Request) -> ApiResult {
    let (head, _) = request.into_parts();
    api.admin.authorize(&head, Role::Viewer)?;
    let list = api.instances.list(&api.engine, &api.live).await;
    Ok(json_response(list.to_string()))
}
