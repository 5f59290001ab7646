//! Reads the verified claims of a request, and caches verified tokens, so that a token that is
//! sent repeatedly is verified once.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ring::digest::{SHA256, digest};

use super::settings::{Jwt, OnInvalid};
use super::token::{InvalidToken, MAX_BYTES, Millis, VerifiedToken};
use crate::claims::Claims;
use crate::request_head::{BadRequest, RequestHead};

/// Finds and verifies the tokens of requests, and extracts the claims that sources refer to.
#[derive(Debug)]
pub(crate) struct TokenReader {
    pub(crate) jwt: Jwt,
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

/// The number of sets in a shard, a power of two.
const SETS: usize = 1024;
/// The most tokens in a set.
const WAYS: usize = 4;
/// The largest number of shards, a power of two.
const MAX_SHARDS: usize = 64;

/// Verified tokens, by their SHA-256: equal hashes mean equal tokens, and the cache holds no
/// token that could be stolen from it.
///
/// Every thread has its own shard, unless there are more threads than shards, so cores rarely
/// wait for each other. Each shard holds at most [`SETS`] × [`WAYS`] tokens. A new token
/// replaces the least recently used one of its set.
#[derive(Debug)]
struct TokenCache {
    shards: Box<[Mutex<Shard>]>,
}

/// The hash of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TokenHash([u8; 32]);

#[derive(Debug, Default)]
struct Shard {
    /// Empty until the first token.
    entries: Vec<Option<Entry>>,
    /// Counts the uses of entries.
    clock: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    hash: TokenHash,
    /// The generation of the keys that verified it.
    generation: u64,
    valid_until: Millis,
    claims: Claims,
    /// The clock of the shard when it was last used.
    used: u64,
}

impl TokenHash {
    fn of(token: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token).as_ref());
        Self(hash)
    }

    /// Returns the set of the token. Only verified tokens are stored, so a client cannot fill a
    /// set with tokens of its choice.
    fn set(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[0], self.0[1]])) % SETS
    }
}

impl TokenCache {
    /// Creates an empty cache.
    fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = cores.next_power_of_two().min(MAX_SHARDS);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
        }
    }

    /// Returns the claims of a token that was verified by keys of this generation, unless it
    /// has expired since.
    fn get(&self, hash: TokenHash, generation: u64, now: Millis) -> Option<Claims> {
        let mut shard = self.shard();
        shard.clock += 1;
        let clock = shard.clock;
        let set = shard.set(hash)?;
        let mut entries = set.iter_mut().flatten();
        let entry = entries.find(|entry| entry.hash == hash)?;
        if entry.generation != generation || now >= entry.valid_until {
            return None;
        }
        entry.used = clock;
        Some(entry.claims.clone())
    }

    /// Stores a token that keys of this generation have verified.
    fn put(&self, hash: TokenHash, generation: u64, verified: &VerifiedToken) {
        let mut shard = self.shard();
        if shard.entries.is_empty() {
            shard.entries.resize(SETS * WAYS, None);
        }
        let entry = Entry {
            hash,
            generation,
            valid_until: verified.valid_until,
            claims: verified.claims.clone(),
            used: shard.clock,
        };
        let Some(set) = shard.set(hash) else {
            return;
        };
        let same = set
            .iter()
            .position(|it| it.as_ref().is_some_and(|it| it.hash == hash));
        let place = same.or_else(|| {
            // `None`, an empty place, is less than any use.
            let uses = set.iter().map(|it| it.as_ref().map(|it| it.used));
            let oldest = uses.enumerate().min_by_key(|(_, used)| *used);
            oldest.map(|(place, _)| place)
        });
        if let Some(place) = place {
            set[place] = Some(entry);
        }
    }

    fn shard(&self) -> MutexGuard<'_, Shard> {
        let shard = thread_number() & (self.shards.len() - 1);
        let shard = self.shards[shard].lock();
        shard.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Returns the places for a token, unless the shard is empty.
    fn set(&mut self, hash: TokenHash) -> Option<&mut [Option<Entry>]> {
        let start = hash.set() * WAYS;
        self.entries.get_mut(start..start + WAYS)
    }
}

/// Returns the number of this thread. Threads are numbered in the order of their first call.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    // The number of a thread that is ending may be gone.
    let number = NUMBER.try_with(|number| {
        let known = number.get();
        let known = known.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        number.set(Some(known));
        known
    });
    number.unwrap_or_default()
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
            // The clock was set back. The token is cached, so `nbf` is not checked again.
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
        let jwt = reader.jwt.clone().issuer("us").audience("web");
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
            let jwt = reader.jwt.clone().token_from(source);
            let reader = TokenReader::new(jwt, ["sub"].into_iter());
            let request = Request::get(&target).header("cookie", cookie);
            let head = request.body(()).unwrap().into_parts().0;
            let claims = reader.claims_at(&head, 0).unwrap();
            let found = claims.map(|claims| claims.get("sub").unwrap_or_default().to_owned());
            assert_eq!(found.as_deref(), expected, "{target}");
        }
    }

    fn verified(valid_until: Millis) -> VerifiedToken {
        let claim = ("sub".into(), "ann".into());
        VerifiedToken {
            claims: Claims::new([claim].into_iter()),
            valid_until,
        }
    }

    #[test]
    fn a_token_is_found_until_it_expires_or_the_keys_change() {
        let cache = TokenCache::new();
        let hash = TokenHash::of(b"a.b.c");
        assert!(cache.get(hash, 1, 0).is_none());
        cache.put(hash, 1, &verified(1000));
        let found = cache.get(hash, 1, 999).unwrap();
        assert_eq!(found.get("sub"), Some("ann"));
        assert!(cache.get(hash, 1, 1000).is_none(), "it has expired");
        assert!(cache.get(hash, 2, 0).is_none(), "the keys have changed");
        assert!(cache.get(TokenHash::of(b"a.b.d"), 1, 0).is_none());
        cache.put(hash, 2, &verified(1000));
        assert!(cache.get(hash, 2, 0).is_some());
    }

    #[test]
    fn many_tokens_do_not_grow_the_cache() {
        let cache = TokenCache::new();
        let hot = TokenHash::of(b"hot");
        cache.put(hot, 1, &verified(1));
        for number in 0..20 * SETS * WAYS {
            assert!(cache.get(hot, 1, 0).is_some(), "it is used all the time");
            let hash = TokenHash::of(&number.to_le_bytes());
            cache.put(hash, 1, &verified(1));
        }
        let shards = cache.shards.iter().map(|shard| shard.lock().unwrap());
        let entries: Vec<_> = shards.map(|shard| shard.entries.len()).collect();
        let full = entries.iter().filter(|entries| **entries > 0).count();
        assert_eq!(entries.iter().sum::<usize>(), SETS * WAYS * full);
        assert_eq!(full, 1, "one thread uses one shard");
    }
}
