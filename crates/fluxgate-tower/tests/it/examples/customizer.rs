//! The example with tenants and tokens.

use std::net::SocketAddr;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use fluxgate_testkit::{Answer, Http, Program};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::start_with;

const SECRET: &str = "a secret of thirty-two bytes, ok!";
const HS256: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
// The years 2100 and 2001.
const FUTURE: u64 = 4_102_444_800;
const PAST: u64 = 1_000_000_000;

fn start() -> (Program, SocketAddr) {
    start_with("customizer", |command| {
        command.env("JWT_SECRET", SECRET);
    })
}

fn claims(user: &str, plan: &str, exp: u64) -> String {
    format!(r#"{{"sub":"{user}","plan":"{plan}","tenants":["acme","globex"],"exp":{exp}}}"#)
}

/// Creates a token with this head and these claims, signed with this secret.
fn token(head: &str, claims: &str, secret: &str) -> String {
    let signed = format!("{}.{}", BASE64.encode(head), BASE64.encode(claims));
    let hash = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    let signature = hash.chain_update(&signed).finalize().into_bytes();
    format!("{signed}.{}", BASE64.encode(signature))
}

fn valid(user: &str, plan: &str) -> String {
    token(HS256, &claims(user, plan, FUTURE), SECRET)
}

/// Sends a request for a tenant with this `Authorization`.
fn get(address: SocketAddr, tenant: &str, authorization: &str) -> Answer {
    let headers = [
        ("X-Tenant", tenant),
        ("Authorization", authorization),
        // This header must not identify the user.
        ("X-User-Id", "ann"),
    ];
    Http::new(address).request("GET", "/", &headers, "")
}

fn statuses(address: SocketAddr, tenant: &str, token: &str, count: usize) -> Vec<u16> {
    let authorization = format!("Bearer {token}");
    let answers = (0..count).map(|_| get(address, tenant, &authorization).status);
    answers.collect()
}

#[test]
fn tenants_plans_and_users_have_separate_limits() {
    let (_program, address) = start();
    let ann = valid("ann", "free");
    assert_eq!(statuses(address, "acme", &ann, 4), [200, 200, 200, 429]);
    assert_eq!(statuses(address, "globex", &ann, 4), [200, 200, 200, 429]);
    let bob = valid("bob", "free");
    assert_eq!(statuses(address, "acme", &bob, 4), [200, 200, 200, 429]);
    // The users of a tenant with the plan `pro` share a limit.
    let [cid, dee] = ["cid", "dee"].map(|user| valid(user, "pro"));
    assert_eq!(statuses(address, "acme", &cid, 4), [200; 4]);
    assert_eq!(statuses(address, "acme", &dee, 2), [200, 429]);
    assert_eq!(statuses(address, "globex", &dee, 1), [200]);
}

#[test]
fn an_invalid_token_identifies_no_user() {
    let (program, address) = start();
    let ann = claims("ann", "pro", FUTURE);
    let signed = token(HS256, &ann, SECRET);
    let (unsigned, signature) = signed.rsplit_once('.').unwrap();
    let none = BASE64.encode(r#"{"alg":"none"}"#);
    let others = format!("{}.{}", BASE64.encode(HS256), BASE64.encode(&ann));
    let bob = valid("bob", "pro");
    let of_bob = bob.rsplit_once('.').unwrap().1;
    let mut flipped = signature.as_bytes().to_vec();
    flipped[0] = if flipped[0] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    let no_end = r#"{"sub":"ann","plan":"pro","tenants":["acme"]}"#;
    let bad = [
        (
            "forged",
            token(HS256, &ann, "another secret of thirty-two byte"),
        ),
        ("no secret", token(HS256, &ann, "")),
        ("one bit off", format!("{unsigned}.{flipped}")),
        ("cut short", format!("{unsigned}.{}", &signature[..20])),
        ("of another token", format!("{others}.{of_bob}")),
        ("unsigned", format!("{unsigned}.")),
        ("alg: none", format!("{none}.{}.", BASE64.encode(&ann))),
        (
            "alg: none, but signed",
            token(r#"{"alg":"none"}"#, &ann, SECRET),
        ),
        ("alg: None", token(r#"{"alg":"None"}"#, &ann, SECRET)),
        ("another alg", token(r#"{"alg":"HS512"}"#, &ann, SECRET)),
        ("no alg", token("{}", &ann, SECRET)),
        ("expired", token(HS256, &claims("ann", "pro", PAST), SECRET)),
        ("no expiry", token(HS256, no_end, SECRET)),
        (
            "an unknown plan",
            token(HS256, &claims("ann", "gold", FUTURE), SECRET),
        ),
        ("empty", String::new()),
    ];
    let mut asked = 0;
    let mut anonymous = |what: &str, tenant: &str, authorization: &str| {
        let answer = get(address, tenant, authorization);
        let policy = answer.header("ratelimit-policy");
        assert_eq!(policy, Some(r#""anonymous/b0";q=2;w=60"#), "{what}");
        asked += 1;
        // They share the limit of their address.
        assert_eq!(answer.status, if asked <= 2 { 200 } else { 429 }, "{what}");
    };
    for (what, token) in &bad {
        anonymous(what, "acme", &format!("Bearer {token}"));
    }
    anonymous("another scheme", "acme", &format!("Basic {signed}"));
    anonymous("another tenant", "initech", &format!("Bearer {signed}"));
    anonymous("no tenant", "", &format!("Bearer {signed}"));
    // The limit of the user is unused.
    assert_eq!(
        statuses(address, "acme", &signed, 6),
        [200, 200, 200, 200, 200, 429]
    );
    drop(program);
}

#[test]
fn the_printed_token_is_valid() {
    let (program, address) = start();
    let token = program.wait_for_line("a token", |line| {
        let (_, rest) = line.split_once("Bearer ")?;
        Some(rest.split_once('\'')?.0.to_owned())
    });
    assert_eq!(statuses(address, "acme", &token, 4), [200, 200, 200, 429]);
}
