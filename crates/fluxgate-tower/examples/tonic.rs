//! A gRPC server with limits: gRPC's own health service.
//!
//! `cargo run -p fluxgate-tower --example tonic [ADDRESS]`

use std::error::Error;
use std::time::Duration;

use fluxgate_core::Quota;
use fluxgate_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    let limits = RateLimitLayer::by_peer_ip(Quota::per(3, Duration::from_secs(10)))
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
