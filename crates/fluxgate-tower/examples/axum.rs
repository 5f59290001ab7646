//! An axum server with limits.
//!
//! `cargo run -p fluxgate-tower --example axum [ADDRESS]`

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use fluxgate_core::{KeyPart, Quota, Rule};
use fluxgate_tower::{RateLimitLayer, Source};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    let per_user = Rule::new("per-user")
        .match_path("/api/**")
        .key([KeyPart::User, KeyPart::Attribute("tenant".into())])
        .band(Quota::per(3, Duration::from_secs(10)));
    let polite = Rule::new("polite")
        .match_path("/wait")
        .per_ip()
        .band(Quota::per_second(1))
        .wait_up_to(Duration::from_secs(5));
    let limits = RateLimitLayer::by_rules([per_user, polite])?
        .exclude(["/api/health"])
        // Without a tenant, the address takes its place in the key.
        .attribute("tenant", Source::header("X-Tenant"));
    let app = Router::new()
        .route("/api/hello", get(async || "hello\n"))
        .route("/api/health", get(async || "ok\n"))
        .route("/wait", get(async || "thank you for waiting\n"))
        .layer(limits);
    let address = listener.local_addr()?;
    eprintln!("listening on http://{address}");
    eprintln!(
        "try: for i in 1 2 3 4; do curl -i -H 'X-User-Id: ann' http://{address}/api/hello; done"
    );
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
