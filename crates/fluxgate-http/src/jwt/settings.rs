//! How tokens are found and verified.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::key_set::KeySet;
use super::key_source::{JwtError, KeySource, endpoint};
use super::token::Policy;
use crate::source::Source;

const DEFAULT_LEEWAY: Duration = Duration::from_secs(30);

/// How tokens are found and verified (feature `jwt`). Sources such as [`Source::jwt`] then read
/// the claims of valid tokens.
///
/// ```
/// use fluxgate_http::{Filter, Identity, Jwt, Source};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("jwt-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// # let path = directory.join("jwks.json");
/// # std::fs::write(&path, r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"2026-01",
/// #     "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#)?;
/// let jwt = Jwt::from_jwks_file(path)?
///     .issuer("https://issuer.example")
///     .audience("orders");
/// let filter = Filter::default()
///     .rule_set("api-limits")
///     .jwt(jwt)
///     .identity(Identity::default().user(Source::jwt("sub")))
///     .attribute("plan", Source::jwt("account.plan"));
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
///
/// A token is valid if a key of the kind that its algorithm needs verifies its signature, if
/// `exp` and `nbf` allow it now, and if `iss` and `aud` are as configured. The algorithms are RS,
/// PS and HS with 256, 384 and 512 bits, ES256, ES384, and EdDSA with Ed25519; never `none`. A
/// token without `exp` does not expire. Tokens of more than 8 KiB and tokens with critical
/// extensions are invalid.
///
/// Verified tokens are cached until they expire or the keys change: at most 4,096 for each
/// core, rounded up to a power of two, and at most 262,144. Keys are renewed in the background,
/// which needs a Tokio runtime. A file is read every two seconds. A key set is fetched every
/// five minutes, and when no known key fits a token, but then at most once a minute. Requests do
/// not wait for the fetch: until the new key is known, its tokens are invalid. If keys cannot be
/// renewed, the old ones stay in use.
#[derive(Clone, Debug)]
pub struct Jwt {
    pub(super) keys: Arc<KeySet>,
    pub(crate) from: Source,
    pub(super) policy: Policy,
    pub(super) on_invalid: OnInvalid,
}

/// What happens to a request whose token is invalid. A missing token is not invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInvalid {
    /// It has no claims, as if it had no token.
    #[default]
    Anonymous,
    /// It is answered with 401. It is not counted.
    Deny,
}

impl Jwt {
    /// Verifies tokens by the JSON Web Key Set in this file.
    pub fn from_jwks_file(path: impl AsRef<Path>) -> Result<Self, JwtError> {
        Self::new(KeySource::JwksFile(path.as_ref().into()))
    }

    /// Verifies tokens by the JSON Web Key Set at this `https` or `http` address. Until it has
    /// been fetched, all tokens are invalid; [`Jwt::load`] waits for that.
    ///
    /// Certificates are verified by the authorities of the system, or of the file that the
    /// environment variable `SSL_CERT_FILE` names.
    pub fn from_jwks_url(address: &str) -> Result<Self, JwtError> {
        Self::new(KeySource::Url(endpoint(address)?))
    }

    /// Verifies tokens that are signed with the secret in this file (HS256, HS384, HS512). A
    /// newline at the end of the file is ignored.
    pub fn from_secret_file(path: impl AsRef<Path>) -> Result<Self, JwtError> {
        Self::new(KeySource::SecretFile(path.as_ref().into()))
    }

    /// Verifies tokens that are signed with this secret (HS256, HS384, HS512). A newline at its
    /// end is ignored.
    pub fn from_secret(secret: impl AsRef<[u8]>) -> Result<Self, JwtError> {
        Self::new(KeySource::Program(Bytes::copy_from_slice(secret.as_ref())))
    }

    fn new(source: KeySource) -> Result<Self, JwtError> {
        let jwt = Self {
            keys: KeySet::new(source)?,
            from: Source::header("authorization"),
            policy: Policy::default(),
            on_invalid: OnInvalid::default(),
        };
        Ok(jwt.leeway(DEFAULT_LEEWAY))
    }

    /// Finds the token in this source; in the header `Authorization` by default. In a header it
    /// may follow the scheme `Bearer`. A header with another scheme holds no token.
    ///
    /// # Panics
    /// If the source is a claim or a field of a call.
    pub fn token_from(mut self, source: Source) -> Self {
        assert!(
            source.claim_name().is_none() && !source.is_of_mcp_call(),
            "`{source}` cannot hold a token; write header:NAME, query:NAME or cookie:NAME"
        );
        self.from = source;
        self
    }

    /// Accepts tokens of this issuer (`iss`). More than one may be added; without any, `iss` is
    /// not checked.
    pub fn issuer(mut self, issuer: impl Into<Box<str>>) -> Self {
        self.policy.issuers.push(issuer.into());
        self
    }

    /// Accepts tokens for this audience (`aud`). More than one may be added; without any, `aud`
    /// is not checked, and tokens that the issuer created for other services are valid too.
    pub fn audience(mut self, audience: impl Into<Box<str>>) -> Self {
        self.policy.audiences.push(audience.into());
        self
    }

    /// Sets by how much the clock of the issuer may differ from that of this machine; 30 s by
    /// default.
    pub fn leeway(mut self, leeway: Duration) -> Self {
        self.policy.leeway = i64::try_from(leeway.as_millis()).unwrap_or(i64::MAX);
        self
    }

    /// Sets what happens to requests with an invalid token; by default they have no claims.
    pub fn on_invalid(mut self, on_invalid: OnInvalid) -> Self {
        self.on_invalid = on_invalid;
        self
    }

    /// Waits until the keys are known. Keys from an address are otherwise fetched in the
    /// background.
    ///
    /// # Errors
    /// If they cannot be fetched. The background task retries nevertheless.
    pub async fn load(&self) -> Result<(), JwtError> {
        let loaded = self.keys.load().await;
        self.keys.watch();
        loaded
    }
}
