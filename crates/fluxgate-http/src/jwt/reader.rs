//! Reads the verified claims of a request.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::cache::{TokenCache, TokenHash};
use super::claim_set::Millis;
use super::settings::{Jwt, OnInvalid};
use super::token::{InvalidToken, MAX_BYTES};
use crate::claims::Claims;
use crate::request_head::{BadRequest, RequestHead};

/// Finds and verifies the tokens of requests, and extracts the claims that sources refer to.
#[derive(Debug)]
pub(crate) struct TokenReader {
    jwt: Jwt,
    /// The claims to extract.
    names: Box<[Arc<str>]>,
    cache: TokenCache,
}

impl TokenReader {
    pub(crate) fn new<'a>(jwt: Jwt, names: impl Iterator<Item = &'a str>) -> Self {
        Self {
            jwt,
            names: names.map(Into::into).collect(),
            cache: TokenCache::new(),
        }
    }

    pub(crate) fn jwt(&self) -> &Jwt {
        &self.jwt
    }

    /// Returns the verified claims of a request, or `None` if its token is invalid and such
    /// requests are refused. A request without a token has no claims.
    ///
    /// # Errors
    /// If the request has two tokens that differ.
    pub(crate) fn claims(&self, head: &impl RequestHead) -> Result<Option<Claims>, BadRequest> {
        self.claims_at(head, now())
    }

    fn claims_at(
        &self,
        head: &impl RequestHead,
        now: Millis,
    ) -> Result<Option<Claims>, BadRequest> {
        let source = &self.jwt.from;
        let Some(value) = source.value(head, &Claims::default())? else {
            return Ok(Some(Claims::default()));
        };
        let token = if source.is_whole_header() {
            bearer_token(&value)
        } else {
            Some(&*value).filter(|token| !token.is_empty())
        };
        let Some(token) = token else {
            return Ok(Some(Claims::default()));
        };
        let verified = self.verify(token.as_bytes(), now);
        if let Err(invalid) = &verified {
            tracing::debug!(why = %invalid, "a token is invalid");
        }
        Ok(match (verified, self.jwt.on_invalid) {
            (Ok(claims), _) => Some(claims),
            (Err(_), OnInvalid::Anonymous) => Some(Claims::default()),
            (Err(_), OnInvalid::Deny) => None,
        })
    }

    fn verify(&self, token: &[u8], now: Millis) -> Result<Claims, InvalidToken> {
        let Jwt { keys, policy, .. } = &self.jwt;
        keys.watch();
        if token.len() > MAX_BYTES {
            return Err(InvalidToken::TooLarge);
        }
        let current = keys.current();
        let generation = current.generation;
        let hash = TokenHash::of(token);
        if let Some(claims) = self.cache.get(hash, generation, now) {
            return Ok(claims);
        }
        let verified = policy.verify(token, &current.keys, &self.names, now);
        // Without any keys, the task that renews them is already fetching.
        let invalid = verified.as_ref().err();
        if invalid.is_some_and(|invalid| invalid.may_need_newer_keys()) && generation > 0 {
            keys.want_newer();
        }
        let verified = verified?;
        self.cache.put(hash, generation, &verified);
        Ok(verified.claims)
    }
}

/// Returns the token in the value of a header: the text after `Bearer`, or the whole value if
/// it has no scheme. Values with other schemes hold no token.
fn bearer_token(value: &str) -> Option<&str> {
    match value.split_once([' ', '\t']) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Some(token.trim()),
        Some(_) => None,
        None => Some(value).filter(|token| !token.is_empty()),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the times of tokens are wall clock times"
)]
fn now() -> Millis {
    // A clock before 1970 counts as 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default().as_millis();
    Millis::try_from(since).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests {
    use fluxgate_testkit::tokens::TokenKey;
    use http::Request;
    use http::request::Parts;

    use super::*;
    use crate::source::Source;

    const SECOND: Millis = 1000;

    fn head(authorization: &str) -> Parts {
        let request = Request::get("/").header("authorization", authorization);
        request.body(()).unwrap().into_parts().0
    }

    /// Returns a key and a reader of `sub` that trusts it.
    fn reader() -> (TokenKey, TokenReader) {
        let secret = [7; 32];
        let jwt = Jwt::from_secret(secret).unwrap();
        let jwt = jwt.on_invalid(OnInvalid::Deny);
        let reader = TokenReader::new(jwt, ["sub"].into_iter());
        (TokenKey::of_secret("HS256", "k", &secret), reader)
    }

    /// Returns the subject at a time, or `None` if the token is invalid.
    fn subject(reader: &TokenReader, token: &str, now: Millis) -> Option<String> {
        let claims = reader.claims_at(&head(token), now).unwrap()?;
        Some(claims.get("sub").unwrap_or_default().to_owned())
    }

    #[test]
    fn a_cached_token_expires() {
        let (key, reader) = reader();
        let token = key.token(r#"{"sub":"ann","exp":1000,"nbf":900}"#);
        let token = format!("Bearer {token}");
        // With 30 s of leeway.
        for (seconds, is_valid) in [
            (869, false),
            (870, true),
            (1029, true),
            (1030, false),
            (1029, true),
            (9999, false),
            // The clock was set back, to before the token is valid.
            (0, true),
        ] {
            let expected = is_valid.then(|| "ann".to_owned());
            let found = subject(&reader, &token, seconds * SECOND);
            assert_eq!(found, expected, "at {seconds} s");
        }
    }

    #[test]
    fn the_log_says_why_a_token_is_invalid() {
        let (key, reader) = reader();
        let jwt = reader.jwt().clone().issuer("us").audience("web");
        let reader = TokenReader::new(jwt, ["sub"].into_iter());
        let good = r#"{"iss":"us","aud":"web","exp":1000,"nbf":900}"#;
        let other = TokenKey::of_secret("HS256", "k", &[8; 32]);
        let elliptic = TokenKey::new("ES256", "k");
        let header = |fields: &str| key.token_with_header(&format!("{{{fields}}}"), good);
        assert!(reader.verify(key.token(good).as_bytes(), 900_000).is_ok());
        for (token, seconds, expected) in [
            ("x".repeat(MAX_BYTES + 1), 900, InvalidToken::TooLarge),
            ("x.y".into(), 900, InvalidToken::Malformed),
            ("x.y.z".into(), 900, InvalidToken::Malformed),
            (key.token(r#"{"exp":"soon"}"#), 900, InvalidToken::Malformed),
            (header(r#""alg":"none""#), 900, InvalidToken::Algorithm),
            (
                header(r#""alg":"HS256","crit":["b64"]"#),
                900,
                InvalidToken::CriticalExtension,
            ),
            (key.token(good), 1030, InvalidToken::Expired),
            // Not the good token: that one is cached.
            (key.token(r#"{"nbf":900}"#), 869, InvalidToken::NotYetValid),
            (
                key.token(r#"{"iss":"them","aud":"web"}"#),
                900,
                InvalidToken::Issuer,
            ),
            (
                key.token(r#"{"iss":"us","aud":["app"]}"#),
                900,
                InvalidToken::Audience,
            ),
            (elliptic.token(good), 900, InvalidToken::UnknownKey),
            (other.token(good), 900, InvalidToken::NoKeyVerifies),
        ] {
            let invalid = reader.verify(token.as_bytes(), seconds * SECOND);
            assert_eq!(invalid.err(), Some(expected), "{token}");
        }
    }

    #[test]
    fn a_token_without_times_is_valid() {
        let (key, reader) = reader();
        let token = key.token(r#"{"sub":"ann"}"#);
        for now in [0, Millis::MAX - 1] {
            assert_eq!(subject(&reader, &token, now).as_deref(), Some("ann"));
        }
    }

    #[test]
    fn a_header_may_name_the_scheme() {
        let (key, reader) = reader();
        let token = key.token(r#"{"sub":"ann"}"#);
        for (value, expected) in [
            (token.clone(), Some("ann")),
            (format!("Bearer {token}"), Some("ann")),
            (format!("bearer   {token} "), Some("ann")),
            (format!("BEARER\t{token}"), Some("ann")),
            // No token.
            (String::new(), Some("")),
            ("Basic YTpi".into(), Some("")),
            (format!("Token {token}"), Some("")),
            // Invalid ones.
            ("Bearer".into(), None),
            ("Bearer x".into(), None),
            (format!("Bearer{token}"), None),
        ] {
            let found = subject(&reader, &value, 0);
            assert_eq!(found.as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn a_token_may_be_in_a_query_or_a_cookie() {
        let (key, reader) = reader();
        let token = key.token(r#"{"sub":"ann"}"#);
        for (source, target, cookie, expected) in [
            (
                "query:t",
                format!("/?t={token}"),
                String::new(),
                Some("ann"),
            ),
            ("query:t", "/?t=".into(), String::new(), Some("")),
            ("query:t", "/?t=x".into(), String::new(), None),
            // Only headers name a scheme.
            (
                "query:t",
                format!("/?t=Bearer+{token}"),
                String::new(),
                None,
            ),
            (
                "cookie:t",
                "/".into(),
                format!("a=b; t={token}"),
                Some("ann"),
            ),
            ("cookie:t", "/".into(), "t=".into(), Some("")),
        ] {
            let source: Source = source.parse().unwrap();
            let jwt = reader.jwt().clone().token_from(source);
            let reader = TokenReader::new(jwt, ["sub"].into_iter());
            let request = Request::get(&target).header("cookie", cookie);
            let head = request.body(()).unwrap().into_parts().0;
            let claims = reader.claims_at(&head, 0).unwrap();
            let found = claims.map(|claims| claims.get("sub").unwrap_or_default().to_owned());
            assert_eq!(found.as_deref(), expected, "{target}");
        }
    }
}
