//! One limiter with different rule sets for the routes of an axum application.

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use fluxgate_core::memory::Retention;
use fluxgate_core::{Limiter, ManualClock, MemoryStore, RuleSets};
use fluxgate_tower::RateLimitLayer;
use http::{Method, Request};
use tower::ServiceExt;

const RULES: &str = "
rule_sets:
  api: { rules: [ { id: r, scope: per_user, bands: [ { capacity: 3, window: 1h } ] } ] }
  login: { rules: [ { id: r, scope: per_user, bands: [ { capacity: 1, window: 1h } ] } ] }
";

/// Sends a request of this user, and returns the status and the units left.
async fn ask(app: &Router, method: Method, path: &str, user: &str) -> (u16, Option<String>) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("x-user-id", user).body(Body::empty());
    let response = app.clone().oneshot(request.unwrap()).await.unwrap();
    let remaining = response.headers().get("x-ratelimit-remaining");
    let remaining = remaining.map(|value| value.to_str().unwrap().to_owned());
    (response.status().as_u16(), remaining)
}

#[tokio::test]
async fn routes_with_their_own_rule_sets_share_a_limiter() {
    let store = MemoryStore::new(ManualClock::default(), 1_000, Retention::Forever);
    let limiter = Limiter::new(RuleSets::from_yaml(RULES).unwrap(), store);
    let limits = RateLimitLayer::new(limiter.clone());
    let login = limits.clone().rule_set("login");
    let app = Router::new()
        .route("/items", get(async || "items"))
        .route("/items/{id}", get(async || "item"))
        .route_layer(limits.clone().rule_set("api"))
        .route("/login", post(async || "in").layer(login.clone()))
        .route(
            "/reset",
            post(async || "sent")
                .layer(login.same_body())
                .get(async || "form"),
        )
        .route("/free", get(async || "free"));
    let ask = async |method: Method, path: &str, user: &str, expected: (u16, Option<&str>)| {
        let (status, remaining) = ask(&app, method.clone(), path, user).await;
        let found = (status, remaining.as_deref());
        assert_eq!(found, expected, "{method} {path} {user}");
    };
    // The routes of one rule set count together.
    ask(Method::GET, "/items", "ann", (200, Some("2"))).await;
    ask(Method::GET, "/items/1", "ann", (200, Some("1"))).await;
    // Those of another count by themselves, though its rule has the same id.
    ask(Method::POST, "/login", "ann", (200, Some("0"))).await;
    ask(Method::POST, "/reset", "ann", (429, Some("0"))).await;
    ask(Method::POST, "/login", "ann", (429, Some("0"))).await;
    ask(Method::POST, "/reset", "bob", (200, Some("0"))).await;
    ask(Method::GET, "/items/2", "ann", (200, Some("0"))).await;
    ask(Method::GET, "/items", "ann", (429, Some("0"))).await;
    // Nothing else is limited: other methods, other routes, no route.
    ask(Method::GET, "/reset", "ann", (200, None)).await;
    ask(Method::GET, "/free", "ann", (200, None)).await;
    ask(Method::GET, "/none", "ann", (404, None)).await;
    // The state is that of the limiter, which other parts of the program may use.
    let state = limiter.state("login", "r", &["bob"]).await.unwrap();
    assert_eq!(state[0].remaining, 0);
}
