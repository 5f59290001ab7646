//! `ShouldRateLimit`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::body::Body;
use tonic::server::{NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::messages::{RateLimitRequest, RateLimitResponse};
use super::{Grpc, MAX_CALL_BYTES, RATE_LIMIT_SERVICE};
use crate::engine::EngineError;
use crate::http::{Listener, Origin};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// How long a call may take, the sending of the request included.
const TIMEOUT: Duration = Duration::from_secs(10);

/// `envoy.service.ratelimit.v3.RateLimitService`
#[derive(Clone, Debug)]
pub(super) struct RateLimitServer(pub(super) Arc<Grpc>);

impl NamedService for RateLimitServer {
    const NAME: &'static str = RATE_LIMIT_SERVICE;
}

type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl Service<http::Request<Body>> for RateLimitServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != SHOULD_RATE_LIMIT {
            let status = Status::unimplemented("the service has ShouldRateLimit only");
            return Box::pin(async { Ok(status.into_http()) });
        }
        let method = ShouldRateLimit(Arc::clone(&self.0));
        Box::pin(async {
            let mut codec = tonic::server::Grpc::new(ProstCodec::default())
                .apply_max_message_size_config(Some(MAX_CALL_BYTES), None);
            let answer = codec.unary(method, request);
            let answer = tokio::time::timeout(TIMEOUT, answer).await;
            Ok(answer.unwrap_or_else(|_| {
                Status::deadline_exceeded("the request did not come in time").into_http()
            }))
        })
    }
}

/// The one method.
struct ShouldRateLimit(Arc<Grpc>);

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = Boxed<Response<RateLimitResponse>, Status>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let grpc = Arc::clone(&self.0);
        Box::pin(async move { grpc.should_rate_limit(&request).await.map(Response::new) })
    }
}

impl Grpc {
    pub(super) async fn should_rate_limit(
        &self,
        request: &Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, Status> {
        let message = request.get_ref();
        let contexts = message.contexts();
        let contexts = contexts.map_err(|bad| Status::invalid_argument(bad.to_string()))?;
        let origin = Origin::with_headers(Listener::Grpc, request.metadata().as_ref());
        let decisions = match str::from_utf8(&message.domain) {
            Ok(domain) => self.engine.check_all(domain, &contexts, &origin).await,
            // No rule set has such a name.
            Err(_) => {
                let name = String::from_utf8_lossy(&message.domain);
                self.engine.check_missing(&name, &contexts, &origin)
            }
        };
        let decisions = decisions.map_err(cannot_decide)?;
        Ok(RateLimitResponse::new(&decisions, self.headers))
    }
}

/// Trouble with the store is decided by `on_error`, so this is for a service
/// without rules alone.
fn cannot_decide(error: EngineError) -> Status {
    Status::unavailable(error.to_string())
}
