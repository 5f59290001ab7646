//! Limits by tenant, plan and user. Plan and user are claims of a JWT. A header selects the
//! tenant among those that the JWT allows.
//!
//! `cargo run -p fluxgate-tower --example customizer [ADDRESS]`
//!
//! If the header alone named the tenant, a client could get a fresh limit with every request,
//! or use up the limit of another tenant. A request without a valid tenant is anonymous and
//! counts by address.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use fluxgate_core::{KeyPart, Quota, RequestContextBuilder, Rule};
use fluxgate_tower::RateLimitLayer;
use hmac::{Hmac, KeyInit, Mac};
use http::header::AUTHORIZATION;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:3000")).await?;
    let issuer = Issuer::new(&secret()?)?;
    let limits = RateLimitLayer::by_rules(rules())?
        .customize(with_plan)
        .customize(with_tenant);
    let claims = Claims {
        sub: "ann".into(),
        plan: Plan::Free,
        tenants: vec!["acme".into(), "globex".into()],
        exp: now() + 3600,
    };
    let token = issuer.sign(&claims)?;
    // The layer that is added last runs first: tokens are verified before requests are limited.
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

/// Returns a rule for each plan. On the plan `free` each user of a tenant has a limit, on
/// `pro` all users of a tenant share one.
fn rules() -> [Rule; 3] {
    let plan = |name: &str| Rule::new(name).match_attribute("plan", name);
    let attribute = |name: &str| KeyPart::Attribute(name.into());
    [
        plan("free")
            .key([attribute("tenant"), attribute("user")])
            .band(Quota::per_minute(3)),
        plan("pro")
            .key([attribute("tenant")])
            .band(Quota::per_minute(5)),
        plan("anonymous").per_ip().band(Quota::per_minute(2)),
    ]
}

/// Adds the user and the plan of a verified token.
fn with_plan<'a>(
    context: RequestContextBuilder<'a>,
    request: &'a Parts,
) -> RequestContextBuilder<'a> {
    match member(request) {
        Some((claims, _)) => context
            .attribute("user", &*claims.sub)
            .attribute("plan", claims.plan.name()),
        None => context.attribute("plan", "anonymous"),
    }
}

/// Adds the tenant.
fn with_tenant<'a>(
    context: RequestContextBuilder<'a>,
    request: &'a Parts,
) -> RequestContextBuilder<'a> {
    match member(request) {
        Some((_, tenant)) => context.attribute("tenant", tenant),
        None => context,
    }
}

/// Returns the claims of a request and its tenant, if the claims allow it.
fn member(request: &Parts) -> Option<(&Claims, &str)> {
    let claims: &Claims = request.extensions.get()?;
    let tenant = request.headers.get("x-tenant")?.to_str().ok()?;
    let is_allowed = claims.tenants.iter().any(|known| known == tenant);
    is_allowed.then_some((claims, tenant))
}

/// The claims of a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Claims {
    /// The user.
    sub: String,
    plan: Plan,
    /// The tenants that the user may act for.
    tenants: Vec<String>,
    /// When the token expires, in Unix seconds.
    exp: u64,
}

/// The plan of a user. An unknown plan makes a token invalid: no rule would match it, so it
/// would have no limit.
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

/// Signs and verifies tokens with HS256. For tokens of another issuer, use a JWT library and
/// the issuer's public key, and check `iss` and `aud` too.
#[derive(Clone)]
struct Issuer(Hmac<Sha256>);

impl Issuer {
    fn new(secret: &[u8]) -> Result<Self, Box<dyn Error>> {
        // RFC 7518, 3.2: at least as long as the hash.
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

    /// Returns the claims of a token if this issuer signed it and it has not expired.
    fn verify(&self, token: &str, now: u64) -> Option<Claims> {
        #[derive(Deserialize)]
        struct Head {
            alg: String,
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = BASE64.decode(signature).ok()?;
        // In constant time, and before the token is parsed.
        let hash = self.0.clone().chain_update(signed);
        hash.verify_slice(&signature).ok()?;
        let (head, claims) = signed.split_once('.')?;
        let head: Head = serde_json::from_slice(&BASE64.decode(head).ok()?).ok()?;
        let claims: Claims = serde_json::from_slice(&BASE64.decode(claims).ok()?).ok()?;
        (head.alg == "HS256" && now < claims.exp).then_some(claims)
    }
}

/// Returns the token of a request.
fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// Returns the secret from the environment, or a new one for this run.
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
    reason = "tokens expire by the system clock"
)]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
