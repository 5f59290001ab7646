//! Claims of verified tokens as identities.

use std::convert::Infallible;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fluxgate_testkit::tokens::{
    AUDIENCE, ISSUER, TokenKey, claims_of, hostile_tokens, jwks, key_server, unix_now,
};
use fluxgate_tower::{Identity, Jwt, OnInvalid, RateLimitLayer, Source};
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use tower::util::service_fn;
use tower::{Layer, Service};

use crate::support::{Events, Got, Inner, TestLimiter, limiter, send, until};

/// Only requests with a user are limited, so the headers of the response show which have one.
const RULES: &str = "{ id: r, scope: per_user, on_missing_key: skip, \
                     bands: [ { capacity: 1000, window: 1h } ] }";

type TestService = fluxgate_tower::RateLimit<Inner, TestLimiter>;

fn service(jwt: Jwt) -> TestService {
    layer(jwt).layer(Inner::new(&Events::default()))
}

fn layer(jwt: Jwt) -> RateLimitLayer<TestLimiter> {
    RateLimitLayer::new(limiter(RULES))
        .rule_set("s")
        .identity(Identity::default().user(Source::jwt("sub")))
        .jwt(jwt)
}

/// A key set in a file, which is removed when dropped.
struct KeyFile(PathBuf);

impl KeyFile {
    fn new<'a>(keys: impl IntoIterator<Item = &'a TokenKey>) -> Self {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fluxgate-jwks-{}-{number}.json", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(&jwks(keys));
        file
    }

    /// Replaces the file at once.
    fn write(&self, content: &str) {
        let new = self.0.with_extension("new");
        fs::write(&new, content).unwrap();
        fs::rename(&new, &self.0).unwrap();
    }

    fn jwt(&self) -> Jwt {
        Jwt::from_jwks_file(&self.0).unwrap()
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn request(authorization: &[&str]) -> Request<Full<Bytes>> {
    let request = authorization.iter().fold(Request::get("/"), |it, value| {
        it.header("authorization", *value)
    });
    request.body(Full::default()).unwrap()
}

async fn send_token<S>(service: &S, token: &str) -> Got
where
    S: Service<
            Request<Full<Bytes>>,
            Response = Response<fluxgate_tower::ResponseBody<Full<Bytes>>>,
            Error = Infallible,
        > + Clone,
{
    send(service, request(&[&format!("Bearer {token}")])).await
}

/// Returns whether the token identified the sender.
async fn identifies(service: &TestService, token: &str) -> bool {
    let got = send_token(service, token).await;
    assert_eq!(got.status, 200, "{}", got.body);
    got.header("ratelimit").is_some()
}

#[tokio::test(start_paused = true)]
async fn hostile_tokens_never_yield_an_identity() {
    let key = TokenKey::new("RS256", "a");
    let file = KeyFile::new([&key]);
    let jwt = file.jwt().issuer(ISSUER).audience(AUDIENCE);
    let now = unix_now();
    let lenient = service(jwt.clone());
    let strict = service(jwt.on_invalid(OnInvalid::Deny));
    let good = key.token(&claims_of("ann", now));
    // Twice, because a cached token must not help others.
    for _ in 0..2 {
        assert!(identifies(&lenient, &good).await);
        assert!(identifies(&strict, &good).await);
        for (flaw, token) in hostile_tokens(&key, now) {
            assert!(!identifies(&lenient, &token).await, "{flaw}");
            let got = send_token(&strict, &token).await;
            assert_eq!(got.status, 401, "{flaw}");
            let challenge = got.header("www-authenticate");
            assert_eq!(challenge, Some("Bearer error=\"invalid_token\""), "{flaw}");
            let kind = got.header("content-type");
            assert_eq!(kind, Some("application/problem+json"), "{flaw}");
            let problem = r#"{"type":"about:blank","title":"Unauthorized","status":401,"detail":"the token is invalid"}"#;
            assert_eq!(got.body, problem, "{flaw}");
        }
    }
    // A missing token is not an invalid one.
    for service in [&lenient, &strict] {
        for lines in [&[][..], &["Basic YTpi"]] {
            let got = send(service, request(lines)).await;
            assert_eq!((got.status, got.header("ratelimit")), (200, None));
        }
        let bearer = format!("Bearer {good}");
        let twice = send(service, request(&[&bearer, &bearer])).await;
        assert_eq!(twice.status, 200);
        assert!(twice.header("ratelimit").is_some());
        let other = format!("Bearer {}", key.token(&claims_of("bob", now)));
        let differing = send(service, request(&[&bearer, &other])).await;
        assert_eq!(differing.status, 400);
    }
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_is_verified_by_its_own_kind_of_key() {
    let keys = TokenKey::ALGORITHMS.map(|algorithm| TokenKey::new(algorithm, algorithm));
    let claims = claims_of("ann", unix_now());
    let all = KeyFile::new(&keys);
    let all = service(all.jwt());
    for (index, key) in keys.iter().enumerate() {
        let token = key.token(&claims);
        let algorithm = TokenKey::ALGORITHMS[index];
        assert!(identifies(&all, &token).await, "{algorithm}");
        // Without a `kid`, the keys that fit are tried.
        let header = format!(r#"{{"alg":"{algorithm}"}}"#);
        let without_id = key.token_with_header(&header, &claims);
        assert!(identifies(&all, &without_id).await, "{algorithm}");
        for (other, other_key) in keys.iter().enumerate() {
            let file = KeyFile::new([other_key]);
            let service = service(file.jwt());
            let found = identifies(&service, &without_id).await;
            let other = TokenKey::ALGORITHMS[other];
            assert_eq!(
                found,
                other == algorithm,
                "{algorithm} by a key for {other}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_verifies_hmac_only() {
    let secret = b"a secret of at least thirty-two bytes";
    let lines = [&secret[..], b"\n"].concat();
    let file = KeyFile::new([]);
    fs::write(&file.0, lines).unwrap();
    let service = service(Jwt::from_secret_file(&file.0).unwrap());
    let claims = claims_of("ann", unix_now());
    for algorithm in TokenKey::ALGORITHMS {
        let is_hmac = algorithm.starts_with("HS");
        let key = if is_hmac {
            TokenKey::of_secret(algorithm, "any", secret)
        } else {
            TokenKey::new(algorithm, "any")
        };
        assert_eq!(identifies(&service, &key.token(&claims)).await, is_hmac);
        let other = TokenKey::of_secret("HS256", "any", b"another secret");
        assert!(!identifies(&service, &other.token(&claims)).await);
    }
}

#[test]
fn debug_output_does_not_show_secrets() {
    let secret = "hush".repeat(8);
    let file = KeyFile::new([]);
    fs::write(&file.0, &secret).unwrap();
    for jwt in [
        Jwt::from_secret(&secret).unwrap(),
        Jwt::from_secret_file(&file.0).unwrap(),
    ] {
        let shown = format!("{jwt:?}");
        assert!(
            shown.contains("Secret") && !shown.contains("hush"),
            "{shown}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_read_again_when_their_file_changes() {
    let (old, new) = (TokenKey::new("ES256", "old"), TokenKey::new("ES256", "new"));
    let claims = claims_of("ann", unix_now());
    let (old_token, new_token) = (old.token(&claims), new.token(&claims));
    let file = KeyFile::new([&old]);
    let service = service(file.jwt());
    assert!(identifies(&service, &old_token).await);
    assert!(!identifies(&service, &new_token).await);
    // An invalid file changes nothing.
    for invalid in ["", "{", "{}"] {
        file.write(invalid);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(identifies(&service, &old_token).await, "{invalid}");
    }
    file.write(&jwks([&old, &new]));
    until("the new key", async || {
        identifies(&service, &new_token).await
    })
    .await;
    assert!(identifies(&service, &old_token).await);
    file.write(&jwks([&new]));
    // It was in the cache.
    until("the old key's end", async || {
        !identifies(&service, &old_token).await
    })
    .await;
    assert!(identifies(&service, &new_token).await);
    file.write(&jwks([]));
    until("the new key's end", async || {
        !identifies(&service, &new_token).await
    })
    .await;
}

#[tokio::test]
async fn keys_are_fetched_again_for_an_unknown_key_at_most_once_a_minute() {
    let [first, second, third] = ["1", "2", "3"].map(|id| TokenKey::new("EdDSA", id));
    let claims = claims_of("ann", unix_now());
    let response = Arc::new(Mutex::new(("200 OK", jwks([&first]))));
    let server = key_server(&response);
    let fetches = || server.requests().len();
    let jwt = Jwt::from_jwks_url(&format!("http://{}/keys?a=b", server.address())).unwrap();
    jwt.load().await.unwrap();
    let service = service(jwt);
    assert!(identifies(&service, &first.token(&claims)).await);
    assert_eq!(server.requests()[0].target, "/keys?a=b");
    // The first key is revoked.
    response.lock().unwrap().1 = jwks([&second]);
    assert!(!identifies(&service, &second.token(&claims)).await);
    until("the second key", async || {
        identifies(&service, &second.token(&claims)).await
    })
    .await;
    assert!(!identifies(&service, &first.token(&claims)).await);
    response.lock().unwrap().1 = jwks([&third]);
    for _ in 0..1000 {
        assert!(!identifies(&service, &third.token(&claims)).await);
        tokio::task::yield_now().await;
    }
    assert_eq!(fetches(), 2, "the first, and one for the second key");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    until("the third key", async || {
        identifies(&service, &third.token(&claims)).await
    })
    .await;
    assert_eq!(fetches(), 3);
}

#[tokio::test]
async fn keys_that_cannot_be_fetched_leave_the_old_ones_in_use() {
    let key = TokenKey::new("EdDSA", "1");
    let claims = claims_of("ann", unix_now());
    let unavailable = "503 Service Unavailable";
    let response = Arc::new(Mutex::new((unavailable, jwks([&key]))));
    let server = key_server(&response);
    let address = format!("http://{}/", server.address());
    let jwt = Jwt::from_jwks_url(&address).unwrap();
    let error = jwt.load().await.unwrap_err().to_string();
    let expected = format!("{address}: the response has status 503 Service Unavailable, not 200");
    assert_eq!(error, expected);
    let service = service(jwt);
    let token = key.token(&claims);
    assert!(!identifies(&service, &token).await);
    response.lock().unwrap().0 = "200 OK";
    until("the key", async || identifies(&service, &token).await).await;
    response.lock().unwrap().0 = unavailable;
    let unknown = TokenKey::new("EdDSA", "2").token(&claims);
    // An unknown key before the first fetch may have caused another one already.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let fetches = server.requests().len();
    until("a fetch", async || {
        assert!(!identifies(&service, &unknown).await);
        server.requests().len() > fetches
    })
    .await;
    assert!(identifies(&service, &token).await);
}

#[tokio::test]
async fn keys_that_cannot_be_used_are_refused_with_the_reason() {
    let file = KeyFile::new([]);
    let path = file.0.display();
    for (content, why) in [
        (
            &b"{\"keys\":[]}"[..],
            "there is no key that can verify signatures",
        ),
        (
            b"{\"keys\":[{\"kty\":\"RSA\"}]}",
            "there is no key that can verify signatures",
        ),
    ] {
        fs::write(&file.0, content).unwrap();
        let error = Jwt::from_jwks_file(&file.0).unwrap_err().to_string();
        assert_eq!(error, format!("{path}: {why}"));
    }
    fs::write(&file.0, "\n").unwrap();
    let error = Jwt::from_secret_file(&file.0).unwrap_err().to_string();
    assert_eq!(error, format!("{path}: the secret is empty"));
    let error = Jwt::from_jwks_file("/nowhere.json").unwrap_err();
    assert!(error.to_string().starts_with("/nowhere.json: "), "{error}");
    fs::write(&file.0, vec![b' '; (1 << 20) + 1]).unwrap();
    let error = Jwt::from_jwks_file(&file.0).unwrap_err().to_string();
    let expected = format!("{path}: the file is larger than 1048576 bytes");
    assert_eq!(error, expected);
    fs::remove_file(&file.0).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&file.0).status();
    assert!(made.unwrap().success());
    let fifo = file.0.to_str().unwrap();
    for (path, found) in [
        ("/dev", "a directory"),
        ("/dev/zero", "a device"),
        (fifo, "a FIFO or pipe"),
    ] {
        let expected = format!("{path}: expected a regular file, found {found}");
        let error = Jwt::from_jwks_file(path).unwrap_err().to_string();
        assert_eq!(error, expected);
        let error = Jwt::from_secret_file(path).unwrap_err().to_string();
        assert_eq!(error, expected);
    }
    for address in ["", "a", "ftp://a/", "http://u:p@a/", "http:///x", "/x"] {
        let error = Jwt::from_jwks_url(address).unwrap_err().to_string();
        let expected = format!("`{address}` is not the address of a key set");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_sees_one_token_and_no_variant_of_its_header() {
    let key = TokenKey::new("ES384", "a");
    let file = KeyFile::new([&key]);
    let token = key.token(&claims_of("ann", unix_now()));
    let seen: Arc<Mutex<HeaderMap>> = Arc::default();
    let jwt = file.jwt().token_from(Source::header("X-Auth-Token"));
    let service = layer(jwt).layer(service_fn({
        let seen = Arc::clone(&seen);
        move |request: Request<Full<Bytes>>| {
            *seen.lock().unwrap() = request.headers().clone();
            async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) }
        }
    }));
    let request = Request::get("/")
        .header("x-auth-token", &token)
        .header("x-auth-token", &token)
        .header("x_auth-token", "other");
    let got = send(&service, request.body(Full::default()).unwrap()).await;
    assert!(got.header("ratelimit").is_some());
    let seen = seen.lock().unwrap();
    assert_eq!(seen.get_all("x-auth-token").iter().count(), 1);
    assert!(!seen.contains_key("x_auth-token"));
}

#[tokio::test(start_paused = true)]
async fn grpc_clients_get_a_grpc_status() {
    let jwt = Jwt::from_secret("secret").unwrap();
    let service = service(jwt.on_invalid(OnInvalid::Deny));
    let mut request = request(&["Bearer x"]);
    let kind = "application/grpc".parse().unwrap();
    request.headers_mut().insert("content-type", kind);
    let got = send(&service, request).await;
    assert_eq!((got.status, got.header("grpc-status")), (200, Some("16")));
}

#[tokio::test(start_paused = true)]
async fn attributes_come_from_claims_and_stay_absent_without_a_verifier() {
    let secret = [1; 32];
    let key = TokenKey::of_secret("HS256", "a", &secret);
    let rules = "{ id: r, key: [\"attr:org\"], match: { attributes: { admin: \"true\" } }, \
                 on_missing_key: skip, bands: [ { capacity: 1000, window: 1h } ] }";
    let layer = RateLimitLayer::new(limiter(rules))
        .rule_set("s")
        .attribute("org", Source::jwt("https://example.com/org.id"))
        .attribute("admin", Source::jwt("realm.admin"));
    let token = key.token(
        r#"{"https://example.com/org":{"id":12345678901234567890123},"realm":{"admin":true}}"#,
    );
    let without = layer.clone().layer(Inner::new(&Events::default()));
    assert!(!identifies(&without, &token).await);
    let jwt = Jwt::from_secret(secret).unwrap();
    // In any order.
    let with = layer
        .jwt(jwt)
        .attribute("other", Source::jwt("other"))
        .layer(Inner::new(&Events::default()));
    assert!(identifies(&with, &token).await);
}
