//! Decisions over gRPC, as Envoy asks for them: `RateLimitService` v3, and with
//! it the services that tell its health and what it is made of.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod any_bytes;
mod headers;
mod health;
mod messages;
mod reflection;
mod request;
mod response;
mod schema;
mod service;
mod unit;

use std::sync::Arc;

use axum::Router;
use fluxgate_tower::HeaderFamilies;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;

use crate::engine::Engine;
use health::HealthOfService;
use service::RateLimitServer;

/// The service that Envoy asks.
const RATE_LIMIT_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// How large a message may be, a call of Envoy apart.
const MAX_BYTES: usize = 64 * 1024;
/// How large a call of Envoy may be. A client chooses how long the headers are that Envoy
/// sends, perhaps several times, and Envoy lets pass what is not answered.
const MAX_CALL_BYTES: usize = 4 * 1024 * 1024;

/// What the answers need.
#[derive(Debug)]
pub(crate) struct Grpc {
    engine: Arc<Engine>,
    headers: HeaderFamilies,
    /// Closes when the service is to end.
    closing: CancellationToken,
}

impl Grpc {
    pub(crate) fn new(engine: Arc<Engine>, closing: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            engine,
            headers: HeaderFamilies::default(),
            closing,
        })
    }

    /// Where what is answered.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        let health = HealthOfService(Arc::clone(self));
        let health = HealthServer::new(health).max_decoding_message_size(MAX_BYTES);
        let routes = Routes::new(RateLimitServer(Arc::clone(self))).add_service(health);
        let routes = match reflection::services() {
            Ok((v1, v1alpha)) => routes
                .add_service(v1.max_decoding_message_size(MAX_BYTES))
                .add_service(v1alpha.max_decoding_message_size(MAX_BYTES)),
            // It is a help for people; decisions can be made without it.
            Err(error) => {
                tracing::error!(%error, "the gRPC reflection cannot be served");
                routes
            }
        };
        routes.prepare().into_axum_router()
    }
}
