//! Decisions over gRPC: Envoy's `RateLimitService` and `Authorization`, and Kuadrant's service, with
//! health and reflection.

pub(crate) mod ext_authz;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod health;
mod kuadrant;
mod messages;
mod metadata;
mod own_limit;
mod reflection;
mod request;
mod response;
mod service;
mod unary;

use std::sync::Arc;

use axum::Router;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;

use crate::engine::{Engine, LiveFilters};
use ext_authz::AuthorizationService;
use health::HealthService;
use kuadrant::KuadrantService;
use service::RateLimitService;

/// The maximum size of a message to the health and reflection services.
const MAX_BYTES: usize = 64 * 1024;

/// Returns the routes of all services, which end when `closing` is cancelled.
pub(crate) fn router(
    engine: &Arc<Engine>,
    filters: &LiveFilters,
    closing: CancellationToken,
) -> Router {
    let health = HealthService::new(Arc::clone(engine), closing);
    let health = HealthServer::new(health).max_decoding_message_size(MAX_BYTES);
    let rate_limit = RateLimitService::new(Arc::clone(engine));
    let authorization = AuthorizationService::new(Arc::clone(engine), filters.clone());
    let kuadrant = KuadrantService::new(Arc::clone(engine));
    let routes = Routes::new(rate_limit)
        .add_service(kuadrant)
        .add_service(authorization)
        .add_service(health);
    let routes = match reflection::services() {
        Ok((v1, v1alpha)) => routes
            .add_service(v1.max_decoding_message_size(MAX_BYTES))
            .add_service(v1alpha.max_decoding_message_size(MAX_BYTES)),
        // Only tools need reflection, so the service starts without it.
        Err(error) => {
            tracing::error!(%error, "cannot serve gRPC reflection");
            routes
        }
    };
    routes.prepare().into_axum_router()
}
