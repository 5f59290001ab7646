//! Calls of one message that get one message.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prost::Message;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The maximum size of a call. It is generous because Envoy may copy a client's headers
/// several times, and allows a request whose call fails.
const MAX_CALL_BYTES: usize = 4 * 1024 * 1024;
/// How long a message may take to arrive.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A future of a service.
pub(super) type BoxedFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// A method that takes one message and returns one.
pub(super) trait UnaryMethod<Q>: Send + 'static {
    /// The returned message.
    type Answer: Message + 'static;

    /// Answers a call. That may take as long as it likes: if the client cancels the call, the
    /// future is dropped.
    fn answer(&self, request: Request<Q>) -> BoxedFuture<Self::Answer, Status>;
}

/// Receives the message of a call, and sends the answer.
pub(super) async fn call<Q, M>(request: http::Request<Body>, method: M) -> http::Response<Body>
where
    Q: Message + Default + 'static,
    M: UnaryMethod<Q>,
{
    let has_arrived = Arc::new(AtomicBool::new(false));
    let method = Arriving {
        has_arrived: Arc::clone(&has_arrived),
        method,
    };
    let mut codec =
        Grpc::new(ProstCodec::default()).apply_max_message_size_config(Some(MAX_CALL_BYTES), None);
    let mut response = Box::pin(codec.unary(method, request));
    match tokio::time::timeout(TIMEOUT, &mut response).await {
        Ok(response) => response,
        Err(_) if has_arrived.load(Ordering::Relaxed) => response.await,
        Err(_) => Status::deadline_exceeded("the request did not arrive in time").into_http(),
    }
}

/// Adapts a method to tonic.
struct Arriving<M> {
    /// Set when the message has arrived.
    has_arrived: Arc<AtomicBool>,
    method: M,
}

impl<Q, M: UnaryMethod<Q>> UnaryService<Q> for Arriving<M> {
    type Response = M::Answer;
    type Future = BoxedFuture<Response<M::Answer>, Status>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        self.has_arrived.store(true, Ordering::Relaxed);
        let answer = self.method.answer(request);
        Box::pin(async { answer.await.map(Response::new) })
    }
}
