//! Secrets, each read from a file of its own.

use std::io;
use std::path::{Path, PathBuf};

use fluxgate_core::regular_file;

use super::checked::Config;
use super::store::{Redis, Store};

/// More than any password, certificate or list of tokens needs.
const MAX_BYTES: u64 = 1 << 20;

/// The content of a file that must not appear in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text, if the bytes are UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        str::from_utf8(&self.0).ok()
    }

    /// Reads a file, without the newline at its end. `field` is the config field that names
    /// it.
    pub fn read(field: &str, path: &Path) -> Result<Self, SecretError> {
        let failed = |kind| SecretError {
            field: field.to_owned(),
            path: path.into(),
            kind,
        };
        let bytes = regular_file::read(path, MAX_BYTES);
        let mut bytes = bytes.map_err(|error| failed(SecretErrorKind::Unreadable(error)))?;
        let line_end: &[u8] = match &bytes[..] {
            [.., b'\r', b'\n'] => b"\r\n",
            [.., b'\n'] => b"\n",
            _ => b"",
        };
        bytes.truncate(bytes.len() - line_end.len());
        if bytes.is_empty() {
            return Err(failed(SecretErrorKind::Empty));
        }
        Ok(Self(bytes.into()))
    }

    /// Reads a file that must be UTF-8, without the newline at its end.
    pub fn read_text(field: &str, path: &Path) -> Result<Self, SecretError> {
        let secret = Self::read(field, path)?;
        match secret.as_text() {
            Some(_) => Ok(secret),
            None => Err(SecretError {
                field: field.to_owned(),
                path: path.into(),
                kind: SecretErrorKind::NotUtf8,
            }),
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// A secret that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("`{field}`: {}: {kind}", path.display())]
pub struct SecretError {
    /// The field that names the file.
    pub field: String,
    /// The file.
    pub path: PathBuf,
    kind: SecretErrorKind,
}

#[derive(Debug, thiserror::Error)]
enum SecretErrorKind {
    #[error("{0}")]
    Unreadable(io::Error),
    #[error("the file is empty")]
    Empty,
    #[error("the file is not UTF-8")]
    NotUtf8,
}

/// The secrets that are read once, at startup.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// The password for Redis, in UTF-8.
    pub redis_password: Option<Secret>,
    /// The password of the sentinels, in UTF-8.
    pub sentinel_password: Option<Secret>,
    /// The certificate authority of the Redis servers, in PEM.
    pub redis_ca: Option<Secret>,
    /// The client certificate for Redis and its key, in PEM.
    pub redis_client: Option<(Secret, Secret)>,
    /// The secret for hashing identities.
    pub hash_secret: Option<Secret>,
    /// The secret and, if it has one, the certificate authority of each webhook.
    pub webhooks: Vec<(Secret, Option<Secret>)>,
}

impl Secrets {
    /// Reads the files that the config names.
    pub fn load(config: &Config) -> Result<Self, SecretError> {
        let secrets = match &config.store {
            Store::Redis(redis) => Self::of_redis(redis)?,
            Store::Memory { .. } => Self::default(),
        };
        let hash = config.keys.hash_secret_file.as_deref();
        let hash = hash.map(|path| Secret::read("keys.hash_secret_file", path));
        let webhooks = config.webhooks.iter().enumerate().map(|(index, webhook)| {
            let secret_field = format!("webhooks[{index}].secret_file");
            let secret = Secret::read(&secret_field, &webhook.secret_file)?;
            let ca = webhook.ca.as_deref();
            let ca = ca.map(|path| Secret::read(&format!("webhooks[{index}].ca"), path));
            Ok((secret, ca.transpose()?))
        });
        Ok(Self {
            webhooks: webhooks.collect::<Result<_, _>>()?,
            hash_secret: hash.transpose()?,
            ..secrets
        })
    }

    fn of_redis(redis: &Redis) -> Result<Self, SecretError> {
        let text = |field, path: &Option<PathBuf>| {
            let path = path.as_deref();
            path.map(|path| Secret::read_text(field, path)).transpose()
        };
        let mut secrets = Self {
            redis_password: text("store.redis.password_file", &redis.password_file)?,
            sentinel_password: text(
                "store.redis.sentinel.password_file",
                &redis.sentinel_password_file,
            )?,
            ..Self::default()
        };
        if let Some(tls) = &redis.tls {
            let ca = tls.ca.as_deref();
            let ca = ca.map(|path| Secret::read("store.redis.tls.ca", path));
            secrets.redis_ca = ca.transpose()?;
            if let Some((cert, key)) = &tls.client {
                let cert = Secret::read("store.redis.tls.cert", cert)?;
                secrets.redis_client = Some((cert, Secret::read("store.redis.tls.key", key)?));
            }
        }
        Ok(secrets)
    }
}
