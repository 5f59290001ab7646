//! Secrets, which stand in files of their own.

use std::io;
use std::path::{Path, PathBuf};

use super::store::{Mode, Store};
use super::{Config, Redis};
use crate::watch::regular_file;

/// More than any secret, certificate or list of tokens needs.
const MAX_BYTES: u64 = 1 << 20;

/// What a file holds that must not appear in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        str::from_utf8(&self.0).ok()
    }

    /// Reads a file, without the line end at its end. `field` says who wants it.
    pub fn read(field: &'static str, path: &Path) -> Result<Self, SecretError> {
        let trouble = |trouble| SecretError {
            field,
            path: path.into(),
            trouble,
        };
        let bytes = regular_file::read(path, MAX_BYTES);
        let mut bytes = bytes.map_err(|error| trouble(Trouble::Unreadable(error)))?;
        let line_end: &[u8] = match &bytes[..] {
            [.., b'\r', b'\n'] => b"\r\n",
            [.., b'\n'] => b"\n",
            _ => b"",
        };
        bytes.truncate(bytes.len() - line_end.len());
        if bytes.is_empty() {
            return Err(trouble(Trouble::Empty));
        }
        Ok(Self(bytes.into()))
    }

    /// The same of a file that must hold text.
    pub fn read_text(field: &'static str, path: &Path) -> Result<Self, SecretError> {
        let secret = Self::read(field, path)?;
        match secret.as_text() {
            Some(_) => Ok(secret),
            None => Err(SecretError {
                field,
                path: path.into(),
                trouble: Trouble::NoText,
            }),
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// Why a secret could not be had.
#[derive(Debug, thiserror::Error)]
#[error("`{field}`: {}: {trouble}", path.display())]
pub struct SecretError {
    /// The field that names the file.
    pub field: &'static str,
    /// The file.
    pub path: PathBuf,
    trouble: Trouble,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Unreadable(io::Error),
    #[error("the file is empty")]
    Empty,
    #[error("the file is not UTF-8")]
    NoText,
}

/// The secrets that are read once, at the start.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// The password for Redis; text.
    pub redis_password: Option<Secret>,
    /// The password of the sentinels; text.
    pub sentinel_password: Option<Secret>,
    /// The authority that Redis servers are trusted by, in PEM.
    pub redis_ca: Option<Secret>,
    /// What is shown to Redis servers: certificate and key, in PEM.
    pub redis_client: Option<(Secret, Secret)>,
    /// The secret of hashed identities.
    pub hash_secret: Option<Secret>,
}

impl Secrets {
    /// Reads the files that the config names them in.
    pub fn load(config: &Config) -> Result<Self, SecretError> {
        let mut secrets = match &config.store {
            Store::Redis(redis) => Self::of_redis(redis)?,
            Store::Memory { .. } => Self::default(),
        };
        let hash = config.keys.hash_secret_file.as_deref();
        secrets.hash_secret = hash
            .map(|path| Secret::read("keys.hash_secret_file", path))
            .transpose()?;
        Ok(secrets)
    }

    fn of_redis(redis: &Redis) -> Result<Self, SecretError> {
        let mut secrets = Self::default();
        let password = redis.password_file.as_deref();
        secrets.redis_password = password
            .map(|path| Secret::read_text("store.redis.password_file", path))
            .transpose()?;
        if let Mode::Sentinel {
            password_file: Some(path),
            ..
        } = &redis.mode
        {
            let field = "store.redis.sentinel.password_file";
            secrets.sentinel_password = Some(Secret::read_text(field, path)?);
        }
        if let Some(tls) = &redis.tls {
            let ca = tls.ca.as_deref();
            secrets.redis_ca = ca
                .map(|path| Secret::read("store.redis.tls.ca", path))
                .transpose()?;
            if let Some((cert, key)) = &tls.client {
                let cert = Secret::read("store.redis.tls.cert", cert)?;
                secrets.redis_client = Some((cert, Secret::read("store.redis.tls.key", key)?));
            }
        }
        Ok(secrets)
    }
}
