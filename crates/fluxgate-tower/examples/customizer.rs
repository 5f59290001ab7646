//! Limits by tenant, plan and user, of which the last two are claims of a JWT and
//! the first is chosen by a header, among those that the JWT allows.
//!
//! `cargo run -p fluxgate-tower --example customizer [ADDRESS]`
//!
//! A client cannot name a limit that is not its own: were a tenant taken from the
//! header alone, it could have a fresh one with every request, or use up another's.
//! Whoever names no tenant of theirs is anonymous, and counted by address.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use fluxgate_core::{Limiter, MemoryStore, RequestContextBuilder, RuleSets};
use fluxgate_tower::RateLimitLayer;
use hmac::{Hmac, KeyInit, Mac};
use http::header::AUTHORIZATION;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::net::TcpListener;

const RULES: &str = "
rule_sets:
  api-limits:
    rules:
      - id: free
        match: { attributes: { plan: free } }
        key: [\"attr:tenant\", \"attr:user\"]
        bands: [ { id: each, capacity: 3, window: 1m } ]
      - id: pro
        match: { attributes: { plan: pro } }
        key: [\"attr:tenant\"]
        bands: [ { id: all, capacity: 5, window: 1m } ]
      - id: anonymous
        match: { attributes: { plan: none } }
        scope: per_ip
        bands: [ { id: few, capacity: 2, window: 1m } ]
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    let issuer = Issuer::new(&secret()?)?;
    let limiter = Limiter::new(RuleSets::from_yaml(RULES)?, MemoryStore::default());
    let limits = RateLimitLayer::new(limiter)
        .rule_set("api-limits")
        .customize(with_plan)
        .customize(with_tenant);
    let claims = Claims {
        sub: "ann".into(),
        plan: Plan::Free,
        tenants: vec!["acme".into(), "globex".into()],
        exp: now() + 3600,
    };
    let token = issuer.sign(&claims)?;
    // What is added last comes first: who it is must be known before it is limited.
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .layer(limits)
        .layer(from_fn(move |mut request: Request, next: Next| {
            if let Some(claims) = bearer(&request).and_then(|token| issuer.verify(token, now())) {
                request.extensions_mut().insert(claims);
            }
            next.run(request)
        }));
    let address = listener.local_addr()?;
    eprintln!("listening on http://{address}");
    eprintln!(
        "try: for i in 1 2 3 4; do curl -i -H 'X-Tenant: acme' -H 'Authorization: Bearer {token}' http://{address}/; done"
    );
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}

/// Who it is, by its verified token; nobody, without one.
fn with_plan<'a>(
    context: RequestContextBuilder<'a>,
    request: &'a Parts,
) -> RequestContextBuilder<'a> {
    match member(request) {
        Some((claims, _)) => context
            .attribute("user", &*claims.sub)
            .attribute("plan", claims.plan.name()),
        None => context.attribute("plan", "none"),
    }
}

/// For whom it acts.
fn with_tenant<'a>(
    context: RequestContextBuilder<'a>,
    request: &'a Parts,
) -> RequestContextBuilder<'a> {
    match member(request) {
        Some((_, tenant)) => context.attribute("tenant", tenant),
        None => context,
    }
}

/// The claims of a request and the tenant that it names, if it is one of theirs.
fn member(request: &Parts) -> Option<(&Claims, &str)> {
    let claims: &Claims = request.extensions.get()?;
    let tenant = request.headers.get("x-tenant")?.to_str().ok()?;
    let is_theirs = claims.tenants.iter().any(|known| known == tenant);
    is_theirs.then_some((claims, tenant))
}

/// What a token says.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Claims {
    /// The user.
    sub: String,
    plan: Plan,
    /// For whom the user may act.
    tenants: Vec<String>,
    /// When it ends, in Unix seconds.
    exp: u64,
}

/// What was paid for. One that is not known makes a token bad: no rule would
/// match it, and so it would have no limit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Plan {
    Free,
    Pro,
}

impl Plan {
    fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Pro => "pro",
        }
    }
}

/// Signs and verifies tokens by HS256. Where somebody else signs them, use a JWT
/// library and his public key, and check `iss` and `aud` as well.
#[derive(Clone)]
struct Issuer(Hmac<Sha256>);

impl Issuer {
    fn new(secret: &[u8]) -> Result<Self, Box<dyn Error>> {
        // RFC 7518, 3.2: as long as the hash, at least.
        if secret.len() < 32 {
            return Err("JWT_SECRET must have 32 bytes or more".into());
        }
        Ok(Self(Hmac::new_from_slice(secret)?))
    }

    fn sign(&self, claims: &Claims) -> Result<String, Box<dyn Error>> {
        let head = BASE64.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
        let signed = format!("{head}.{}", BASE64.encode(serde_json::to_vec(claims)?));
        let signature = self.0.clone().chain_update(&signed).finalize();
        Ok(format!(
            "{signed}.{}",
            BASE64.encode(signature.into_bytes())
        ))
    }

    /// What a token says, if this issuer says so, and still does at `now`.
    fn verify(&self, token: &str, now: u64) -> Option<Claims> {
        #[derive(Deserialize)]
        struct Head {
            alg: String,
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = BASE64.decode(signature).ok()?;
        // In constant time, and before anything of it is read.
        let hash = self.0.clone().chain_update(signed);
        hash.verify_slice(&signature).ok()?;
        let (head, claims) = signed.split_once('.')?;
        let head: Head = serde_json::from_slice(&BASE64.decode(head).ok()?).ok()?;
        let claims: Claims = serde_json::from_slice(&BASE64.decode(claims).ok()?).ok()?;
        (head.alg == "HS256" && now < claims.exp).then_some(claims)
    }
}

/// The token of a request.
fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// The environment's secret, or a new one for this run.
fn secret() -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    if let Ok(secret) = std::env::var("JWT_SECRET") {
        return Ok(secret.into());
    }
    let mut secret = vec![0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
    Ok(secret)
}

#[expect(
    clippy::disallowed_methods,
    reason = "tokens end by the clock on the wall"
)]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
