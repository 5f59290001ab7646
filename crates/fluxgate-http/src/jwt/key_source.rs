//! Where the keys that verify tokens come from.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use fluxgate_core::regular_file;

use super::endpoint::Endpoint;
use super::error::JwtError;
use super::jwks::Jwks;
use super::key::{Key, KeyMaterial};

/// The largest file.
const MAX_BYTES: u64 = 1 << 20;
/// Shorter secrets can be guessed: RFC 7518 requires at least as many bits as the hash has.
const MIN_SECRET_BYTES: usize = 32;

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
                let fetched = endpoint.fetch().await;
                return fetched.map_err(|error| self.error(error));
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
    regular_file::read(path, MAX_BYTES).map(Bytes::from)
}

fn without_line_end(content: &[u8]) -> &[u8] {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    content.strip_suffix(b"\r").unwrap_or(content)
}
