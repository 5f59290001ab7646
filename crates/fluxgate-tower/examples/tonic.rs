//! A gRPC server with limits: gRPC's own health service.
//!
//! `cargo run -p fluxgate-tower --example tonic [ADDRESS]`

use std::error::Error;

use fluxgate_core::{Limiter, MemoryStore, RuleSets};
use fluxgate_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

const RULES: &str = "
rule_sets:
  api-limits:
    rules:
      - { id: per-ip, scope: per_ip, bands: [ { id: burst, capacity: 3, window: 10s } ] }
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    let limiter = Limiter::new(RuleSets::from_yaml(RULES)?, MemoryStore::default());
    let limits = RateLimitLayer::new(limiter)
        .rule_set("api-limits")
        // tonic keeps the peer's address in an extension of its own.
        .peer(|request| {
            let info = request.extensions.get::<TcpConnectInfo>()?;
            Some(info.remote_addr()?.ip())
        });
    let (_, health) = tonic_health::server::health_reporter();
    let address = listener.local_addr()?;
    eprintln!("listening on http://{address}");
    // The body is an empty message in a gRPC frame.
    eprintln!(
        "try: printf '\\0\\0\\0\\0\\0' | curl -v --http2-prior-knowledge \
         -H 'content-type: application/grpc' -H 'te: trailers' --data-binary @- \
         http://{address}/grpc.health.v1.Health/Check"
    );
    Server::builder()
        .layer(limits)
        .add_service(health)
        .serve_with_incoming(TcpIncoming::from(listener))
        .await?;
    Ok(())
}
