//! An axum server that limits each API key, with a response of its own for denied requests.
//!
//! `cargo run -p fluxgate-tower --example by_header [ADDRESS]`

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use fluxgate_core::Quota;
use fluxgate_tower::{Denial, RateLimitLayer};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Response};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    // Requests without the header are limited by their address.
    let quotas = [Quota::per_minute(3), Quota::per_day(1_000)];
    let limits = RateLimitLayer::by_header("X-API-Key", quotas).on_denied(slow_down);
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limits);
    let address = listener.local_addr()?;
    eprintln!("listening on http://{address}");
    eprintln!("try: for i in 1 2 3 4; do curl -i -H 'X-API-Key: k1' http://{address}/; done");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}

/// Returns the response to a denied request. The layer adds `Retry-After` and the other headers.
fn slow_down(request: &Parts, denial: &Denial) -> Response<String> {
    let seconds = denial.retry_after().map_or(0, |wait| wait.as_secs() + 1);
    let path = request.uri.path();
    let body = format!(r#"{{"error":"slow down","path":"{path}","retry_in":{seconds}}}"#);
    let mut response = Response::new(body);
    *response.status_mut() = denial.status();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
