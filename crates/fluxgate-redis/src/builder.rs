//! How a store finds its servers, and what it is told to do.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::StoreError;

use crate::cluster::Cluster;
use crate::endpoint::{CONNECT_TIMEOUT, Endpoint, Login, Secret};
use crate::events::Events;
use crate::identity_hash::{HashKeys, HashSecret};
use crate::key_name::{BadPrefix, DEFAULT_PREFIX, Naming};
use crate::node::{Node, Source};
use crate::script::TimeSource;
use crate::sentinel::Sentinels;
use crate::store::{First, RedisStore};
use crate::waits::Waits;

/// How long a decision may take, unless told otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// More than any password needs.
const MOST_SECRET_BYTES: usize = 1 << 20;

/// What kind of deployment it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// One URL: the server is asked whether it belongs to a cluster. Several:
    /// they are nodes of one.
    #[default]
    Auto,
    /// One server.
    Standalone,
    /// A cluster; the URLs are some of its nodes.
    Cluster,
    /// The URLs are sentinels, who know this primary.
    Sentinel {
        /// The name of the primary.
        master: String,
    },
}

/// Builds a [`RedisStore`].
#[derive(Clone, Debug)]
pub struct RedisStoreBuilder {
    urls: Vec<String>,
    topology: Topology,
    login: Login,
    password_file: Option<PathBuf>,
    sentinel_login: Login,
    deadline: Duration,
    prefix: String,
    near_cache: bool,
    hash: Option<(HashKeys, HashSecret)>,
    max_waits: Option<u32>,
    time: TimeSource,
}

impl RedisStoreBuilder {
    pub(crate) fn new<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            topology: Topology::Auto,
            login: Login::default(),
            password_file: None,
            sentinel_login: Login::default(),
            deadline: DEFAULT_DEADLINE,
            prefix: DEFAULT_PREFIX.into(),
            near_cache: true,
            hash: Some((HashKeys::ApiKeys, HashSecret::new(b""))),
            max_waits: None,
            time: TimeSource::default(),
        }
    }

    /// Says what kind of deployment it is.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// The user to log in as.
    pub fn username(mut self, username: &str) -> Self {
        self.login.username = Some(username.into());
        self
    }

    /// The password to log in with.
    pub fn password(mut self, password: &str) -> Self {
        self.login.password = Some(Secret(password.into()));
        self
    }

    /// The file that holds the password; it is read when the store is built, and
    /// a line end after it does not count.
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.password_file = Some(path.into());
        self
    }

    /// The password of the sentinels, where they want one.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_login.password = Some(Secret(password.into()));
        self
    }

    /// Trusts servers that this authority (PEM) has signed, instead of those
    /// that the system trusts.
    pub fn tls_ca(mut self, pem: &[u8]) -> Self {
        self.login.tls.ca = Some(pem.into());
        self
    }

    /// Shows servers this certificate, with its key (both PEM).
    pub fn tls_client(mut self, certificate: &[u8], key: &[u8]) -> Self {
        self.login.tls.client = Some((certificate.into(), Secret(key.into())));
        self
    }

    /// How long a decision may take; 50 ms unless told otherwise.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// What all keys begin with; all who share limits must agree on it.
    pub fn key_prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Whether denials are remembered for up to a second; they are unless told
    /// otherwise.
    pub fn near_cache(mut self, near_cache: bool) -> Self {
        self.near_cache = near_cache;
        self
    }

    /// Which parts of identities are stored as a keyed hash, and under which
    /// secret; all who share limits must agree on both. Unless told otherwise,
    /// API keys are hashed under a secret that is none: nobody reads them in
    /// passing, but whoever guesses one can check the guess.
    pub fn hash_keys(mut self, which: HashKeys, secret: HashSecret) -> Self {
        self.hash = Some((which, secret));
        self
    }

    /// Stores all identities as they are.
    pub fn plain_keys(mut self) -> Self {
        self.hash = None;
        self
    }

    /// How many may wait at a time, in all processes together.
    pub fn max_cluster_waits(mut self, most: u32) -> Self {
        self.max_waits = Some(most);
        self
    }

    /// Decides at the time of this clock and lets nothing expire: for tests,
    /// with another script than that of production.
    #[cfg(feature = "injected-time")]
    pub fn injected_clock(mut self, clock: fluxgate_core::ManualClock) -> Self {
        self.time.clock = Some(clock);
        self
    }

    /// Connects; fails if the server cannot be reached.
    pub async fn connect(self) -> Result<RedisStore, ConnectError> {
        let store = self.build()?;
        // Once, and there is much to do: it may take longer than a decision.
        store.ping_within(CONNECT_TIMEOUT).await?;
        Ok(store)
    }

    /// The store, which connects when it is first asked. It must be asked
    /// inside a tokio runtime.
    pub fn build(mut self) -> Result<RedisStore, ConnectError> {
        if let Some(path) = &self.password_file {
            self.login.password = Some(read_secret(path)?);
        }
        self.sentinel_login.tls = self.login.tls.clone();
        let endpoints = |login: &Login| {
            let endpoints = self.urls.iter().map(|url| {
                Endpoint::new(url, login).map_err(|cause| ConnectError::Url {
                    url: without_secrets(url),
                    cause: cause.to_string(),
                })
            });
            endpoints.collect::<Result<Vec<_>, _>>()
        };
        let servers = endpoints(&self.login)?;
        let Some(first) = servers.first().cloned() else {
            return Err(ConnectError::NoUrl);
        };
        let events = Arc::<Events>::default();
        let node = |source| Node::new(source, Arc::clone(&events));
        let cluster = |servers| Cluster::new(servers, Arc::clone(&events));
        let first = match &self.topology {
            Topology::Standalone => First::One(node(Source::Fixed(first))),
            Topology::Cluster => First::Cluster(cluster(servers)),
            // The first may be down, and need not be asked.
            Topology::Auto if servers.len() > 1 => First::Cluster(cluster(servers)),
            Topology::Auto => First::Ask(node(Source::Fixed(first)), cluster(servers)),
            Topology::Sentinel { master } => {
                let sentinels = endpoints(&self.sentinel_login)?;
                let events = Arc::clone(&events);
                let sentinels = Sentinels::new(sentinels, first, master.clone(), events);
                First::One(node(Source::Sentinels(sentinels)))
            }
        };
        let mut naming = Naming::new(&self.prefix)?;
        if let Some((which, secret)) = self.hash {
            naming = naming.hashing(which, secret);
        }
        let waits = self.max_waits.map(|most| Waits::new(&self.prefix, most));
        Ok(RedisStore::new(
            first,
            naming,
            self.deadline,
            self.near_cache,
            waits,
            self.time,
            events,
        ))
    }
}

/// Why a store could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No URL was given.
    #[error("no URL of a server")]
    NoUrl,
    /// A URL that says nothing.
    #[error("`{url}` is not the URL of a server: {cause}")]
    Url {
        /// The URL, without user and password.
        url: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A file that should hold a secret.
    #[error("{}: {cause}", .path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// A prefix that keys cannot begin with.
    #[error(transparent)]
    Prefix(#[from] BadPrefix),
    /// The server could not be reached, or would not serve.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn read_secret(path: &Path) -> Result<Secret, ConnectError> {
    let bad = |cause: String| ConnectError::SecretFile {
        path: path.into(),
        cause,
    };
    let mut secret = read_bounded(path).map_err(|error| bad(error.to_string()))?;
    if secret.len() > MOST_SECRET_BYTES {
        return Err(bad(format!(
            "the file is larger than {MOST_SECRET_BYTES} bytes"
        )));
    }
    while let Some(b'\n' | b'\r') = secret.last() {
        secret.pop();
    }
    if secret.is_empty() {
        return Err(bad("there is no password in it".into()));
    }
    Ok(Secret(secret))
}

/// Reads one byte more than a secret may have, at most. A FIFO or a device may
/// never end, nor give anything.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "expected a regular file",
        ));
    }
    let mut bytes = Vec::new();
    let most = MOST_SECRET_BYTES as u64 + 1;
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A URL as it may be shown.
fn without_secrets(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://…@{place}"),
        _ => url.to_owned(),
    }
}
