//! Verifies a token: a JSON Web Signature in its compact form (RFC 7515) that holds claims
//! (RFC 7519).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::algorithm::Algorithm;
use super::claim_set::{ClaimSet, MalformedClaims, Millis};
use super::key::Key;
use crate::claims::Claims;

/// The longest token. A longer one is invalid and is not parsed.
pub(super) const MAX_BYTES: usize = 8 * 1024;

/// The most keys to try for a token, so that a client cannot make the filter verify one
/// signature a hundred times.
const MAX_TRIES: usize = 8;

/// The requirements for a token apart from its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
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
