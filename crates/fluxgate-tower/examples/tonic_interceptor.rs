//! A gRPC server that limits calls by their API key in a tonic interceptor.
//!
//! `cargo run -p fluxgate-tower --example tonic_interceptor [ADDRESS]`
//!
//! An interceptor is synchronous: it can ask a limiter in this process and cannot wait. It runs
//! for one service, where the layer of the example `tonic` runs for the whole server. For rules,
//! a Redis store, limit headers or waiting, use the layer.

use std::error::Error;
use std::time::Duration;

use fluxgate_core::{KeyedLimiter, Quota};
use tokio::net::TcpListener;
use tonic::metadata::MetadataMap;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Status};

const API_KEY: &str = "x-api-key";
/// Clients with a retry policy wait for so many milliseconds.
const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    let limiter = KeyedLimiter::new(Quota::per_minute(3));
    let (_, health) = tonic_health::server::health_reporter();
    // Each connection has a clone of the interceptor, and clones of a limiter share their state.
    let health = InterceptedService::new(health, move |call| limit(&limiter, call));
    let address = listener.local_addr()?;
    eprintln!("listening on http://{address}");
    // The body is an empty message in a gRPC frame.
    eprintln!(
        "try: printf '\\0\\0\\0\\0\\0' | curl -v --http2-prior-knowledge \
         -H 'content-type: application/grpc' -H 'te: trailers' -H '{API_KEY}: k1' \
         --data-binary @- http://{address}/grpc.health.v1.Health/Check"
    );
    Server::builder()
        .add_service(health)
        .serve_with_incoming(TcpIncoming::from(listener))
        .await?;
    Ok(())
}

/// Takes a unit of the caller's quota, or refuses the call.
fn limit(limiter: &KeyedLimiter, call: Request<()>) -> Result<Request<()>, Status> {
    // A server would verify the key first: otherwise a new key is a new quota.
    let Some(key) = call.metadata().get(API_KEY) else {
        return Err(Status::unauthenticated(format!("`{API_KEY}` is missing")));
    };
    match limiter.check(key.as_encoded_bytes()) {
        Ok(_) => Ok(call),
        Err(denied) => Err(exhausted(denied.retry_after.unwrap_or_default())),
    }
}

/// Returns the status of a call that would pass after this time.
fn exhausted(retry_after: Duration) -> Status {
    let millis = retry_after.as_micros().div_ceil(1000);
    let mut metadata = MetadataMap::new();
    if let Ok(value) = millis.to_string().parse() {
        metadata.insert(RETRY_PUSHBACK, value);
    }
    let message = format!("the quota is used up; retry after {millis} ms");
    Status::with_metadata(Code::ResourceExhausted, message, metadata)
}
