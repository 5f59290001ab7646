//! Where the keys that verify tokens come from.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::regular_file;
use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};

use super::jwks::Jwks;
use super::key::{Key, KeyMaterial};
use crate::endpoint::{CallError, Endpoint, EndpointError};
use crate::trust::{ClientCertificates, TrustError};

/// The largest file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Shorter secrets can be guessed: RFC 7518 requires at least as many bits as the hash has.
const MIN_SECRET_BYTES: usize = 32;

/// Why tokens cannot be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtError {
    /// The address is not one such as `https://issuer.example/jwks.json`.
    #[error("`{0}` is not the address of a key set, such as https://issuer.example/jwks.json")]
    Address(String),
    /// The system has no certificate authorities to trust.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The keys cannot be read.
    #[error("{place}: {why}")]
    Keys {
        /// The file or address.
        place: String,
        /// Why they cannot be read.
        why: String,
    },
}

/// Where the keys come from.
#[derive(Clone)]
pub(super) enum KeySource {
    /// The program provides this secret.
    Program(Bytes),
    /// A file with a key set.
    JwksFile(PathBuf),
    /// A file with a secret.
    SecretFile(PathBuf),
    /// A server with a key set.
    Url(Endpoint),
}

impl KeySource {
    /// Returns whether the keys never change.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self, Self::Program(_))
    }

    /// Returns whether the keys are in a file.
    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::JwksFile(_) | Self::SecretFile(_))
    }

    /// Reads the content that the keys are parsed from.
    pub(super) async fn read(&self) -> Result<Bytes, JwtError> {
        let path = match self {
            Self::Program(secret) => return Ok(secret.clone()),
            Self::Url(endpoint) => {
                return fetch(endpoint).await.map_err(|error| self.error(error));
            }
            Self::JwksFile(path) | Self::SecretFile(path) => path.clone(),
        };
        // A hanging file system must not block requests.
        let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
        let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
        read.map_err(|error| self.error(error))
    }

    /// Reads the content without a runtime, or returns `None` if it must be fetched.
    pub(super) fn read_now(&self) -> Result<Option<Bytes>, JwtError> {
        match self {
            Self::Program(secret) => Ok(Some(secret.clone())),
            Self::Url(_) => Ok(None),
            Self::JwksFile(path) | Self::SecretFile(path) => {
                let read = read_file(path).map_err(|error| self.error(error))?;
                Ok(Some(read))
            }
        }
    }

    /// Parses the keys.
    pub(super) fn parse(&self, content: &[u8]) -> Result<Vec<Key>, JwtError> {
        match self {
            Self::Program(_) | Self::SecretFile(_) => {
                let secret = without_line_end(content);
                if secret.is_empty() {
                    return Err(self.error("the secret is empty"));
                }
                if secret.len() < MIN_SECRET_BYTES {
                    tracing::warn!(
                        keys = %self,
                        "the secret that verifies tokens has fewer than {MIN_SECRET_BYTES} bytes: \
                         an attacker with one token may guess it"
                    );
                }
                Ok(vec![Key {
                    id: None,
                    algorithm: None,
                    material: KeyMaterial::Secret(secret.into()),
                }])
            }
            Self::JwksFile(_) | Self::Url(_) => {
                let set = Jwks::parse(content).map_err(|error| self.error(error))?;
                for (index, why) in &set.unusable {
                    tracing::debug!(keys = %self, "key {index} of the set is not used: {why}");
                }
                Ok(set.keys)
            }
        }
    }

    fn error(&self, why: impl std::fmt::Display) -> JwtError {
        JwtError::Keys {
            place: self.to_string(),
            why: why.to_string(),
        }
    }

    /// Returns the error of a source without a usable key.
    pub(super) fn no_key(&self) -> JwtError {
        self.error("there is no key that can verify signatures")
    }
}

/// Does not show the secret.
impl std::fmt::Debug for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeySource({self})")
    }
}

impl std::fmt::Display for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Program(_) => f.write_str("the secret"),
            Self::JwksFile(path) | Self::SecretFile(path) => write!(f, "{}", path.display()),
            Self::Url(endpoint) => write!(f, "{endpoint}"),
        }
    }
}

fn read_file(path: &Path) -> io::Result<Bytes> {
    regular_file::read(path, MAX_FILE_BYTES).map(Bytes::from)
}

fn without_line_end(content: &[u8]) -> &[u8] {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    content.strip_suffix(b"\r").unwrap_or(content)
}

/// The largest key set.
const MAX_BODY_BYTES: usize = 256 * 1024;
/// How long a fetch may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("no response within {} s", DEADLINE.as_secs())]
    Deadline,
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("invalid request: {0}")]
    Request(#[from] http::Error),
    #[error("the response has status {0}, not 200")]
    Status(StatusCode),
    #[error("the body of the response cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

/// Returns the endpoint of a key set. For `https` the certificate authorities of the system are
/// trusted, or those of the file that `SSL_CERT_FILE` names.
pub(super) fn endpoint(address: &str) -> Result<Endpoint, JwtError> {
    Endpoint::new(address, ClientCertificates::default()).map_err(|error| match error {
        EndpointError::Address => JwtError::Address(address.to_owned()),
        EndpointError::Trust(error) => error.into(),
    })
}

/// Fetches a key set.
async fn fetch(endpoint: &Endpoint) -> Result<Bytes, FetchError> {
    let fetched = tokio::time::timeout(DEADLINE, async {
        let request = Request::get(endpoint.path_and_query())
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .body(Full::default())?;
        let response = endpoint.send(request).await?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_BODY_BYTES).collect();
        Ok(body.await.map_err(FetchError::Body)?.to_bytes())
    });
    fetched.await.unwrap_or(Err(FetchError::Deadline))
}
