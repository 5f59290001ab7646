//! Tokens that must never yield an identity.

use super::{TokenKey, encoded};

/// The issuer that verifiers of [`hostile_tokens`] require.
pub const ISSUER: &str = "https://issuer.example";
/// The audience that they require.
pub const AUDIENCE: &str = "api";

/// Returns the claims of a token that a verifier accepts, with this subject. `now` is in seconds
/// since the Unix epoch.
pub fn claims_of(subject: &str, now: u64) -> String {
    let (expires, not_before) = (now + 3600, now - 3600);
    format!(
        r#"{{"sub":"{subject}","iss":"{ISSUER}","aud":["other","{AUDIENCE}"],"exp":{expires},"nbf":{not_before}}}"#
    )
}

/// Returns tokens that a verifier with the RSA key `key`, for RS256, must refuse, each with its
/// flaw. Their subject is `mallory`. The verifier requires [`ISSUER`] and [`AUDIENCE`], and its
/// leeway is less than an hour.
pub fn hostile_tokens(key: &TokenKey, now: u64) -> Vec<(&'static str, String)> {
    let claims = claims_of("mallory", now);
    let good = key.token(&claims);
    let id = &key.id;
    let (message, signature) = good.rsplit_once('.').unwrap_or_default();
    let (header, payload) = message.split_once('.').unwrap_or_default();
    let later = |seconds: u64| (now + seconds).to_string();
    let changed = |from: &str, to: &str| {
        assert!(claims.contains(from), "{from} is in {claims}");
        key.token(&claims.replace(from, to))
    };
    let (expires, not_before) = (later(3600), (now - 3600).to_string());
    // Signs with a public key as the secret of HMAC.
    let confused = |algorithm: &str, secret: &[u8]| {
        let secret = TokenKey::of_secret(algorithm, id, secret);
        secret.token(&claims)
    };
    let headed = |header: &str| key.token_with_header(header, &claims);
    let unsigned = |algorithm: &str, signature: &str| {
        let header = encoded(format!(r#"{{"alg":"{algorithm}","kid":"{id}"}}"#).as_bytes());
        format!("{header}.{payload}.{signature}")
    };
    let other_payload = encoded(claims_of("admin", now).as_bytes());
    vec![
        (
            "forged payload",
            format!("{header}.{other_payload}.{signature}"),
        ),
        ("forged key", TokenKey::other("RS256", id).token(&claims)),
        ("no signature", format!("{message}.")),
        ("truncated signature", good[..good.len() - 8].into()),
        (
            "truncated payload",
            format!("{header}.{}.{signature}", &payload[..payload.len() - 4]),
        ),
        ("two parts", message.into()),
        ("four parts", format!("{good}.{signature}")),
        ("five parts", format!("{good}.a.b")),
        ("empty parts", "..".into()),
        ("one word", "mallory".into()),
        ("not base64", good.replacen('.', ".*", 1)),
        ("padded base64", format!("{good}==")),
        (
            "another alphabet",
            format!("{message}.{}", signature.replace(['-', '_'], "+")),
        ),
        ("expired", changed(&expires, &(now - 3600).to_string())),
        ("exp as text", changed(&expires, &format!("\"{expires}\""))),
        ("exp is null", changed(&expires, "null")),
        ("not yet valid", changed(&not_before, &later(3600))),
        ("nbf as text", changed(&not_before, "\"0\"")),
        (
            "wrong issuer",
            changed(ISSUER, "https://issuer.example.evil"),
        ),
        ("no issuer", changed(r#""iss""#, r#""Iss""#)),
        (
            "issuer in a list",
            changed(&format!("\"{ISSUER}\""), &format!("[\"{ISSUER}\"]")),
        ),
        (
            "wrong audience",
            changed(&format!("\"{AUDIENCE}\""), "\"web\""),
        ),
        ("no audience", changed(r#""aud""#, r#""Aud""#)),
        ("claims in a list", key.token(&format!("[{claims}]"))),
        ("claims are no JSON", key.token("sub=mallory")),
        ("alg none", unsigned("none", "")),
        ("alg None", unsigned("None", signature)),
        ("no alg", headed(&format!(r#"{{"kid":"{id}"}}"#))),
        (
            "two algs",
            headed(&format!(r#"{{"alg":"none","alg":"RS256","kid":"{id}"}}"#)),
        ),
        (
            "another RSA algorithm",
            headed(&format!(r#"{{"alg":"RS512","kid":"{id}"}}"#)),
        ),
        (
            "HMAC by the PEM",
            confused("HS256", key.public_pem().as_bytes()),
        ),
        (
            "HMAC by the trimmed PEM",
            confused("HS256", key.public_pem().trim().as_bytes()),
        ),
        ("HMAC by the DER", confused("HS256", &key.public_der())),
        ("HMAC by the JWK", confused("HS512", key.jwk().as_bytes())),
        ("HMAC by nothing", confused("HS256", b"")),
        ("wrong kid", headed(r#"{"alg":"RS256","kid":"other"}"#)),
        ("kid is a number", headed(r#"{"alg":"RS256","kid":1}"#)),
        (
            "key in the token",
            TokenKey::other("RS256", id).token_with_header(
                &format!(
                    r#"{{"alg":"RS256","jwk":{},"jku":"http://127.0.0.1:1/"}}"#,
                    TokenKey::other("RS256", id).jwk()
                ),
                &claims,
            ),
        ),
        (
            "critical extension",
            headed(&format!(r#"{{"alg":"RS256","kid":"{id}","crit":["exp"]}}"#)),
        ),
        (
            "unencoded payload",
            headed(&format!(
                r#"{{"alg":"RS256","kid":"{id}","b64":false,"crit":["b64"]}}"#
            )),
        ),
        (
            "crit is null",
            headed(&format!(r#"{{"alg":"RS256","kid":"{id}","crit":null}}"#)),
        ),
        (
            "oversized",
            key.token(&claims.replacen('{', &format!("{{\"x\":\"{}\",", "x".repeat(8192)), 1)),
        ),
    ]
}
