//! `RateLimitService`, and its one method `ShouldRateLimit`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fluxgate_http::HeaderFamilies;
use fluxgate_http::server::{Listener, Origin};
use tonic::body::Body;
use tonic::server::{NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::messages::{RATE_LIMIT_SERVICE, RateLimitRequest, RateLimitResponse};
use super::request::contexts;
use super::response::response;
use crate::engine::Engine;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The maximum size of a call. It is generous because Envoy may copy a client's headers
/// several times, and allows a request whose call fails.
const MAX_CALL_BYTES: usize = 4 * 1024 * 1024;
/// How long a call may take, including the time to receive it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// `envoy.service.ratelimit.v3.RateLimitService`
#[derive(Clone, Debug)]
pub(super) struct RateLimitService {
    engine: Arc<Engine>,
    headers: HeaderFamilies,
}

impl NamedService for RateLimitService {
    const NAME: &'static str = RATE_LIMIT_SERVICE;
}

type BoxedFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

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
        let method = ShouldRateLimit(self.clone());
        Box::pin(async {
            let mut codec = tonic::server::Grpc::new(ProstCodec::default())
                .apply_max_message_size_config(Some(MAX_CALL_BYTES), None);
            let response = codec.unary(method, request);
            let response = tokio::time::timeout(TIMEOUT, response).await;
            Ok(response.unwrap_or_else(|_| {
                Status::deadline_exceeded("the request did not arrive in time").into_http()
            }))
        })
    }
}

/// Adapts the method to tonic.
struct ShouldRateLimit(RateLimitService);

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = BoxedFuture<Response<RateLimitResponse>, Status>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move { service.should_rate_limit(&request).await.map(Response::new) })
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
