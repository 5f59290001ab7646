//! An axum server with limits.
//!
//! `cargo run -p fluxgate-tower --example axum [ADDRESS]`

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use fluxgate_core::{Limiter, MemoryStore, RuleSets};
use fluxgate_tower::{RateLimitLayer, Source};
use tokio::net::TcpListener;

const RULES: &str = "
rule_sets:
  api-limits:
    rules:
      - id: per-user
        match: { path: [\"/api/**\"] }
        key: [user, \"attr:tenant\"]
        bands: [ { id: burst, capacity: 3, window: 10s } ]
      - id: polite
        match: { path: [\"/wait\"] }
        scope: per_ip
        on_exceed: wait
        bands: [ { capacity: 1, window: 1s } ]
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    let limiter = Limiter::new(RuleSets::from_yaml(RULES)?, MemoryStore::default());
    let limits = RateLimitLayer::new(limiter)
        .rule_set("api-limits")
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
