//! An axum server with limits that a FluxGate service decides.
//!
//! `cargo run -p fluxgate-tower --example remote [ADDRESS [SERVICE [RULE_SET]]]`
//!
//! The service may be the demo: `cargo run --release`.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use fluxgate_core::{Limiter, MemoryStore, Quota, Rule, RuleSet};
use fluxgate_tower::{RateLimitLayer, RemoteHandler};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let listener = TcpListener::bind(argument("127.0.0.1:3000")).await?;
    let service = argument("http://127.0.0.1:8081");
    let rule_set = argument("api-limits");
    // While the service fails, this process limits each address by itself.
    let per_ip = Rule::new("fallback").per_ip();
    let per_ip = per_ip.band(Quota::per(3, Duration::from_secs(10)));
    let fallback = RuleSet::builder(rule_set.as_str()).rule(per_ip).build()?;
    let fallback = Limiter::new(fallback, MemoryStore::default());
    let handler = RemoteHandler::new(&service)?.local_on_error(fallback);
    let limits = RateLimitLayer::with_handler(handler).rule_set(rule_set);
    let app = Router::new()
        .route("/api/hello", get(async || "hello\n"))
        .layer(limits);
    let address = listener.local_addr()?;
    eprintln!("listening on http://{address}, limited by {service}");
    eprintln!(
        "try: for i in 1 2 3 4; do curl -i -H 'X-User-Id: ann' http://{address}/api/hello; done"
    );
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
