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
use super::own_limit::OwnDecision;
use super::request::descriptors;
use super::response::{DescriptorDecision, response};
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
        // No rule set has a name that is not UTF-8, or one with the character that replaces it.
        let domain = String::from_utf8_lossy(&message.domain);
        let read = descriptors(&domain, message)
            .map_err(|bad| Status::invalid_argument(bad.to_string()))?;
        let origin = Origin::with_headers(Listener::Grpc, request.metadata().as_ref());
        let decided = self
            .engine
            .check_all(&domain, &read.contexts, &read.own, &origin);
        // Fails only before the rules are loaded: if the store fails, `on_error` decides.
        let decided = decided.await;
        let (by_rules, own) = decided.map_err(|error| Status::unavailable(error.to_string()))?;
        let (mut by_rules, mut own) = (by_rules.iter(), own.into_iter());
        let at = self.engine.store_time();
        let decisions = read.limits.into_iter().filter_map(|limit| match limit {
            None => by_rules.next().map(DescriptorDecision::ByRules),
            Some(limit) => {
                let decision = own.next()?;
                Some(DescriptorDecision::ByOwnLimit(OwnDecision {
                    limit,
                    decision,
                    at,
                }))
            }
        });
        let decisions: Vec<_> = decisions.collect();
        Ok(response(&decisions, self.headers))
    }
}
