//! `RateLimitService`, and its one method `ShouldRateLimit`.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use fluxgate_http::HeaderFamilies;
use fluxgate_http::server::{Listener, Origin};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Request, Status};
use tower_service::Service;

use super::messages::{RATE_LIMIT_SERVICE, RateLimitRequest, RateLimitResponse};
use super::request::contexts;
use super::response::response;
use super::unary::{self, BoxedFuture, UnaryMethod};
use crate::engine::Engine;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// `envoy.service.ratelimit.v3.RateLimitService`
#[derive(Clone, Debug)]
pub(super) struct RateLimitService {
    engine: Arc<Engine>,
    headers: HeaderFamilies,
}

impl NamedService for RateLimitService {
    const NAME: &'static str = RATE_LIMIT_SERVICE;
}

impl Service<http::Request<Body>> for RateLimitService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxedFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != SHOULD_RATE_LIMIT {
            let status = Status::unimplemented("the only method is ShouldRateLimit");
            return Box::pin(async { Ok(status.into_http()) });
        }
        let method = self.clone();
        Box::pin(async { Ok(unary::call(request, method).await) })
    }
}

impl UnaryMethod<RateLimitRequest> for RateLimitService {
    type Answer = RateLimitResponse;

    fn answer(&self, request: Request<RateLimitRequest>) -> BoxedFuture<RateLimitResponse, Status> {
        let service = self.clone();
        Box::pin(async move { service.should_rate_limit(&request).await })
    }
}

impl RateLimitService {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let headers = HeaderFamilies::default();
        Self { engine, headers }
    }

    pub(super) async fn should_rate_limit(
        &self,
        request: &Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, Status> {
        let message = request.get_ref();
        let contexts =
            contexts(message).map_err(|bad| Status::invalid_argument(bad.to_string()))?;
        let origin = Origin::with_headers(Listener::Grpc, request.metadata().as_ref());
        let decisions = match str::from_utf8(&message.domain) {
            Ok(domain) => self.engine.check_all(domain, &contexts, &origin).await,
            // No rule set has such a name.
            Err(_) => {
                let name = String::from_utf8_lossy(&message.domain);
                self.engine.check_missing_set(&name, &contexts, &origin)
            }
        };
        // Fails only before the rules are loaded: if the store fails, `on_error` decides.
        let decisions = decisions.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(response(&decisions, self.headers))
    }
}
