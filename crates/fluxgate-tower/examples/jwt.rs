//! An axum server that limits each user by the subject and the plan of a verified token.
//!
//! `cargo run -p fluxgate-tower --example jwt [ADDRESS [KEYS]]`, where `KEYS` is the file or the
//! `https` address of a JSON Web Key Set.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use fluxgate_core::{Quota, Rule};
use fluxgate_tower::{Identity, Jwt, OnInvalid, RateLimitLayer, Source};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let keys = arguments.next().unwrap_or_else(|| "jwks.json".to_owned());
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    let jwt = if keys.contains("://") {
        Jwt::from_jwks_url(&keys)?
    } else {
        Jwt::from_jwks_file(&keys)?
    };
    // Before the server accepts requests: without keys, all tokens are invalid.
    jwt.load().await?;
    let jwt = jwt
        .issuer("https://issuer.example")
        .audience("api")
        .on_invalid(OnInvalid::Deny);
    // Requests without a token are limited by their address.
    let all = Rule::new("all").per_user().band(Quota::per_minute(100));
    let free = Rule::new("free")
        .match_attribute("plan", "free")
        .per_user()
        .band(Quota::per_minute(3));
    let limits = RateLimitLayer::by_rules([all, free])?
        .identity(Identity::default().user(Source::jwt("sub")))
        .attribute("plan", Source::jwt("account.plan"))
        .jwt(jwt);
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limits);
    let address = listener.local_addr()?;
    eprintln!("listening on http://{address}");
    eprintln!("try: curl -i -H \"Authorization: Bearer $TOKEN\" http://{address}/");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
