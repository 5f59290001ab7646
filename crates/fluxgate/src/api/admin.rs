//! The admin endpoints, which read and change rules and state.

mod batch;
mod conditions;
mod fields;
mod list;
mod state;
mod stored;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::state::ApiState;

/// Returns the routes of all admin endpoints.
pub(super) fn routes() -> Router<Arc<ApiState>> {
    let set = get(stored::get_set)
        .put(stored::put_set)
        .delete(stored::delete_set);
    let rule = get(stored::get_rule)
        .put(stored::put_rule)
        .delete(stored::delete_rule);
    Router::new()
        .route("/v1/refund", post(state::refund))
        .route("/v1/reset", post(state::reset))
        .route("/v1/state", get(state::state))
        .route("/v1/state/batch", post(batch::batch))
        .route("/v1/rule_sets", get(list::list))
        .route("/v1/rules_text", get(list::text))
        .route("/v1/rule_sets/{set}", set)
        .route("/v1/rule_sets/{set}/text", get(stored::get_text))
        .route("/v1/rule_sets/{set}/history", get(stored::get_history))
        .route("/v1/rule_sets/{set}/rules/{rule}", rule)
        .route(
            "/v1/rule_sets/{set}/rules/{rule}/enable",
            post(stored::enable),
        )
        .route(
            "/v1/rule_sets/{set}/rules/{rule}/disable",
            post(stored::disable),
        )
}
