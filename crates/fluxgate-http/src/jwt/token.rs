//! Verifies a token: a JSON Web Signature in its compact form (RFC 7515) that holds claims
//! (RFC 7519).

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Number;
use serde_json::value::RawValue;

use super::key::{Algorithm, Key};
use crate::claims::Claims;

/// The longest token. A longer one is invalid and is not parsed.
pub(super) const MAX_BYTES: usize = 8 * 1024;

/// The most keys to try for a token, so that a client cannot make the filter verify one
/// signature a hundred times.
const MAX_TRIES: usize = 8;

/// The requirements for a token apart from its signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Policy {
    /// The allowed values of `iss`. If empty, `iss` is not checked.
    pub(super) issuers: Vec<Box<str>>,
    /// The allowed values of `aud`; a token must have at least one of them. If empty, `aud` is
    /// not checked.
    pub(super) audiences: Vec<Box<str>>,
    /// The allowed difference between the clocks of the issuer and of this machine.
    pub(super) leeway: Millis,
}

/// A token whose signature and claims are valid.
#[derive(Clone, Debug)]
pub(super) struct VerifiedToken {
    pub(super) claims: Claims,
    /// The token is invalid from this time on.
    pub(super) valid_until: Millis,
}

/// Why a token is invalid. Displayed for the log; the client does not learn it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidToken {
    #[error("it is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("it is malformed")]
    Malformed,
    #[error("its `alg` is not accepted")]
    Algorithm,
    #[error("it has a critical extension (`crit`)")]
    CriticalExtension,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYetValid,
    #[error("its issuer (`iss`) is not allowed")]
    Issuer,
    #[error("its audience (`aud`) is not allowed")]
    Audience,
    #[error("no key has its `kid` and is for its `alg`")]
    UnknownKey,
    /// The keys are tried because they, or the token, have no `kid`.
    #[error("no key verifies its signature")]
    NoKeyVerifies,
    #[error("the key with its `kid` does not verify its signature")]
    Signature,
}

impl InvalidToken {
    /// Returns whether newer keys may verify the token.
    pub(super) fn may_need_newer_keys(self) -> bool {
        matches!(self, Self::UnknownKey | Self::NoKeyVerifies)
    }
}

impl From<MalformedClaims> for InvalidToken {
    fn from(_: MalformedClaims) -> Self {
        Self::Malformed
    }
}

/// The header of a token. Other members are ignored: `jwk` and `jku`, for example, would let a
/// client choose the key.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Whether it has critical extensions. None is supported.
    #[serde(default, rename = "crit", deserialize_with = "is_present")]
    has_extensions: bool,
}

fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer)?;
    Ok(true)
}

impl Policy {
    /// Verifies a token at a time and extracts the claims of these names.
    pub(super) fn verify(
        &self,
        token: &[u8],
        keys: &[Key],
        names: &[Arc<str>],
        now: Millis,
    ) -> Result<VerifiedToken, InvalidToken> {
        let (message, signature) = split_at_last_dot(token)?;
        let (header, payload) = split_at_last_dot(message)?;
        let header: Header =
            serde_json::from_slice(&decoded(header)?).map_err(|_| InvalidToken::Malformed)?;
        let algorithm = Algorithm::parse(&header.alg).ok_or(InvalidToken::Algorithm)?;
        if header.has_extensions {
            return Err(InvalidToken::CriticalExtension);
        }
        let payload = decoded(payload)?;
        let claims = ClaimSet::parse(&payload)?;
        // Before the signature, because it costs less.
        let valid_until = self.check(&claims, now)?;
        verify_signature(
            keys,
            algorithm,
            header.kid.as_deref(),
            message,
            &decoded(signature)?,
        )?;
        let values = names.iter();
        let values = values.filter_map(|name| Some((Arc::clone(name), claims.value(name)?)));
        Ok(VerifiedToken {
            claims: Claims::new(values),
            valid_until,
        })
    }

    /// Checks the registered claims and returns until when the token is valid.
    fn check(&self, claims: &ClaimSet<'_>, now: Millis) -> Result<Millis, InvalidToken> {
        let expires = claims.expires()?;
        let valid_until = expires.map_or(Millis::MAX, |at| at.saturating_add(self.leeway));
        let not_before = claims.not_before()?.unwrap_or(Millis::MIN);
        let has_issuer = || self.issuers.is_empty() || claims.is_one_of("iss", &self.issuers);
        let has_audience =
            || self.audiences.is_empty() || claims.has_one_of("aud", &self.audiences);
        if now >= valid_until {
            Err(InvalidToken::Expired)
        } else if now < not_before.saturating_sub(self.leeway) {
            Err(InvalidToken::NotYetValid)
        } else if !has_issuer() {
            Err(InvalidToken::Issuer)
        } else if !has_audience() {
            Err(InvalidToken::Audience)
        } else {
            Ok(valid_until)
        }
    }
}

/// Verifies a signature by the keys that may have made it.
fn verify_signature(
    keys: &[Key],
    algorithm: Algorithm,
    id: Option<&str>,
    message: &[u8],
    signature: &[u8],
) -> Result<(), InvalidToken> {
    // Without an id, in the token or in the key, the key may be the right one.
    let may_match = |key: &&Key| match (id, &key.id) {
        (Some(id), Some(known)) => id == &**known,
        _ => true,
    };
    let candidates = keys.iter().filter(may_match);
    let candidates = candidates.filter(|key| key.fits(algorithm));
    let mut invalid = InvalidToken::UnknownKey;
    for key in candidates.take(MAX_TRIES) {
        if key.verifies(algorithm, message, signature) {
            return Ok(());
        }
        let is_named = id.is_some() && key.id.is_some();
        invalid = if is_named || invalid == InvalidToken::Signature {
            InvalidToken::Signature
        } else {
            InvalidToken::NoKeyVerifies
        };
    }
    Err(invalid)
}

fn split_at_last_dot(token: &[u8]) -> Result<(&[u8], &[u8]), InvalidToken> {
    let dot = token.iter().rposition(|byte| *byte == b'.');
    let dot = dot.ok_or(InvalidToken::Malformed)?;
    Ok((&token[..dot], &token[dot + 1..]))
}

/// Decodes base64url without padding. A dot in the header, left over from a token with more
/// than three parts, is refused here.
fn decoded(text: &[u8]) -> Result<Vec<u8>, InvalidToken> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| InvalidToken::Malformed)
}

/// Milliseconds since the Unix epoch.
pub(super) type Millis = i64;

/// The claims of a token. Values stay JSON text: a number that is an identity must not lose
/// digits.
#[derive(Debug)]
pub(super) struct ClaimSet<'a>(HashMap<String, &'a RawValue>);

/// A claim that has another shape than RFC 7519 requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedClaims;

impl<'a> ClaimSet<'a> {
    /// Reads the payload of a token.
    pub(super) fn parse(payload: &'a [u8]) -> Result<Self, MalformedClaims> {
        let claims = serde_json::from_slice(payload);
        claims.map(Self).map_err(|_| MalformedClaims)
    }

    /// Returns `exp`, rounded down to a second. The token is valid only before this time.
    pub(super) fn expires(&self) -> Result<Option<Millis>, MalformedClaims> {
        self.time("exp", f64::floor)
    }

    /// Returns `nbf`, rounded up to a second. The token is valid from this time on.
    pub(super) fn not_before(&self) -> Result<Option<Millis>, MalformedClaims> {
        self.time("nbf", f64::ceil)
    }

    fn time(&self, name: &str, round: fn(f64) -> f64) -> Result<Option<Millis>, MalformedClaims> {
        let Some(json) = self.0.get(name) else {
            return Ok(None);
        };
        let number: Number = serde_json::from_str(json.get()).map_err(|_| MalformedClaims)?;
        let seconds = match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole,
            // The conversion saturates.
            (None, Some(number)) => round(number) as i64,
            (None, None) => return Err(MalformedClaims),
        };
        Ok(Some(seconds.saturating_mul(1000)))
    }

    /// Returns whether a claim is one of the allowed strings.
    pub(super) fn is_one_of(&self, name: &str, allowed: &[Box<str>]) -> bool {
        let text = self.parsed::<String>(name);
        text.is_some_and(|text| is_allowed(&text, allowed))
    }

    /// Returns whether a claim is one of the allowed strings, or a list with one of them.
    pub(super) fn has_one_of(&self, name: &str, allowed: &[Box<str>]) -> bool {
        let list = || self.parsed::<Vec<String>>(name).unwrap_or_default();
        self.is_one_of(name, allowed) || list().iter().any(|text| is_allowed(text, allowed))
    }

    fn parsed<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    /// Returns the value of a claim as text: a string as it is, a number or a boolean as its
    /// JSON text. Prefers the claim with exactly this name. Otherwise dots separate the names of
    /// nested claims, which may contain dots themselves.
    pub(super) fn value(&self, name: &str) -> Option<Box<str>> {
        if let Some(json) = self.0.get(name) {
            return text_of(json.get());
        }
        name.match_indices('.').find_map(|(dot, _)| {
            let (outer, inner) = (&name[..dot], &name[dot + 1..]);
            let nested: HashMap<String, &RawValue> =
                serde_json::from_str(self.0.get(outer)?.get()).ok()?;
            ClaimSet(nested).value(inner)
        })
    }
}

fn is_allowed(text: &str, allowed: &[Box<str>]) -> bool {
    allowed.iter().any(|allowed| **allowed == *text)
}

/// Returns a JSON value as text, unless it is null, a list or an object.
fn text_of(json: &str) -> Option<Box<str>> {
    match json.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(json).ok().map(Into::into),
        b'-' | b'0'..=b'9' | b't' | b'f' => Some(json.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_text_a_number_or_a_boolean() {
        let payload = br#"{
            "text": "a\u0062", "empty": "", "big": 123456789012345678901234567890,
            "fraction": -1.50e3, "yes": true, "no": false, "null": null, "list": ["a"],
            "realm": { "role": "admin", "deep": { "er": 7 }, "list": [] },
            "a.b": "whole", "a": { "b": "nested", "c": "nested" },
            "https://example.com/plan": "pro",
            "https://example.com/org": { "id": "o1" }
        }"#;
        let claims = ClaimSet::parse(payload).unwrap();
        for (name, expected) in [
            ("text", Some("ab")),
            ("empty", Some("")),
            ("big", Some("123456789012345678901234567890")),
            ("fraction", Some("-1.50e3")),
            ("yes", Some("true")),
            ("no", Some("false")),
            ("null", None),
            ("list", None),
            ("realm", None),
            ("absent", None),
            ("realm.role", Some("admin")),
            ("realm.deep.er", Some("7")),
            ("realm.deep", None),
            ("realm.list", None),
            ("realm.", None),
            ("text.role", None),
            ("a.b", Some("whole")),
            ("a.c", Some("nested")),
            ("https://example.com/plan", Some("pro")),
            ("https://example.com/org.id", Some("o1")),
        ] {
            assert_eq!(claims.value(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn times_are_numbers() {
        let times = |json: &str| {
            let payload = format!("{{\"exp\":{json},\"nbf\":{json}}}");
            let claims = ClaimSet::parse(payload.as_bytes()).unwrap();
            (claims.expires(), claims.not_before())
        };
        let both = |millis| (Ok(Some(millis)), Ok(Some(millis)));
        assert_eq!(times("1700000000"), both(1_700_000_000_000));
        assert_eq!(times("-1"), both(-1000));
        assert_eq!(times("1.5"), (Ok(Some(1000)), Ok(Some(2000))));
        assert_eq!(times("1e300"), both(i64::MAX));
        assert_eq!(times("18446744073709551615"), both(i64::MAX));
        for json in ["\"1700000000\"", "null", "true", "[]", "{}"] {
            assert_eq!(
                times(json),
                (Err(MalformedClaims), Err(MalformedClaims)),
                "{json}"
            );
        }
        let none = ClaimSet::parse(b"{}").unwrap();
        assert_eq!((none.expires(), none.not_before()), (Ok(None), Ok(None)));
    }

    #[test]
    fn only_an_object_holds_claims() {
        for payload in ["", "[]", "1", "null", "{\"a\":}", "{}x"] {
            assert_eq!(
                ClaimSet::parse(payload.as_bytes()).err(),
                Some(MalformedClaims)
            );
        }
    }

    #[test]
    fn an_audience_may_be_a_list_and_an_issuer_may_not() {
        let allowed = ["a".into(), "b".into()];
        for (json, has_one, is_one) in [
            ("\"a\"", true, true),
            ("\"c\"", false, false),
            ("\"A\"", false, false),
            ("[\"c\",\"b\"]", true, false),
            ("[\"c\"]", false, false),
            ("[]", false, false),
            ("[1,\"a\"]", false, false),
            ("{\"a\":\"a\"}", false, false),
            ("null", false, false),
        ] {
            let payload = format!("{{\"x\":{json}}}");
            let claims = ClaimSet::parse(payload.as_bytes()).unwrap();
            assert_eq!(claims.has_one_of("x", &allowed), has_one, "{json}");
            assert_eq!(claims.is_one_of("x", &allowed), is_one, "{json}");
            assert!(!claims.has_one_of("y", &allowed) && !claims.is_one_of("y", &allowed));
        }
    }
}
