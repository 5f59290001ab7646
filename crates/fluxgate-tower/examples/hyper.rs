//! A plain hyper server with limits.
//!
//! `cargo run -p fluxgate-tower --example hyper [ADDRESS]`

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::Quota;
use fluxgate_tower::{PeerAddr, RateLimitLayer};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::{ServiceBuilder, service_fn};

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"hello\n"))))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    // One layer for all connections.
    let limits = RateLimitLayer::by_peer_ip(Quota::per(3, Duration::from_secs(10)));
    let address = listener.local_addr()?;
    eprintln!("listening on http://{address}");
    eprintln!("try: for i in 1 2 3 4; do curl -i http://{address}/; done");
    loop {
        let (stream, peer) = listener.accept().await?;
        let service = ServiceBuilder::new()
            // The layer reads the peer's address from the extensions.
            .map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(PeerAddr(peer));
                request
            })
            .layer(limits.clone())
            .service(service_fn(hello));
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            if let Err(error) = connection.await {
                eprintln!("{error}");
            }
        });
    }
}
