//! Builds a store from its servers and options.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::{StoreError, regular_file};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::decider::Decider;
use crate::endpoint::{CONNECT_TIMEOUT, Endpoint, Login, Secret};
use crate::events::Events;
use crate::identity_hash::{HashKeys, HashSecret};
use crate::keys::{DEFAULT_PREFIX, InvalidPrefix, KeyNaming};
use crate::node::{Node, ServerLocation};
use crate::script::TimeSource;
use crate::sentinel::Sentinels;
use crate::servers::{ConfiguredServers, ServerKind, Servers};
use crate::store::RedisStore;
use crate::wait_permits::WaitPermits;

/// The default time that a decision may take.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// The maximum size of a password file.
const MAX_SECRET_BYTES: u64 = 1 << 20;

/// The kind of deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// With one URL, the server's reply tells whether it belongs to a cluster. Several URLs are
    /// nodes of a cluster.
    #[default]
    Auto,
    /// One server.
    Standalone,
    /// A cluster; the URLs are some of its nodes.
    Cluster,
    /// The URLs are sentinels.
    Sentinel {
        /// The name of the primary at the sentinels.
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
    hash_keys: HashKeys,
    hash_secret: HashSecret,
    max_waits: Option<u32>,
    time: TimeSource,
    #[cfg(feature = "lease-trace")]
    lease_trace: Option<PathBuf>,
}

impl RedisStore {
    /// Connects to a server, or to the cluster it belongs to.
    ///
    /// # Errors
    /// If the URL is not valid, or the server does not answer. A program that must start without
    /// Redis can call `RedisStore::builder([url]).build()`: the store connects at its first
    /// decision, and until Redis answers, `on_error` decides.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder([url]).connect().await
    }

    /// Creates a builder for these servers: one server, some nodes of a cluster, or sentinels.
    pub fn builder<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(urls)
    }
}

impl RedisStoreBuilder {
    fn new<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            topology: Topology::Auto,
            login: Login::default(),
            password_file: None,
            sentinel_login: Login::default(),
            deadline: DEFAULT_DEADLINE,
            prefix: DEFAULT_PREFIX.into(),
            near_cache: true,
            hash_keys: HashKeys::default(),
            hash_secret: HashSecret::new(b""),
            max_waits: None,
            time: TimeSource::default(),
            #[cfg(feature = "lease-trace")]
            lease_trace: std::env::var_os("FLUXGATE_LEASE_TRACE").map(PathBuf::from),
        }
    }

    /// Sets the kind of deployment.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// Sets the user to log in as.
    pub fn username(mut self, username: &str) -> Self {
        self.login.username = Some(username.into());
        self
    }

    /// Sets the password to log in with.
    pub fn password(mut self, password: &str) -> Self {
        self.login.password = Some(Secret(password.into()));
        self
    }

    /// Sets the file with the password. It is read when the store is built; line ends after the
    /// password are ignored.
    pub fn password_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.password_file = Some(path.into());
        self
    }

    /// Sets the password of the sentinels.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_login.password = Some(Secret(password.into()));
        self
    }

    /// Sets the certificate authority (PEM) to trust instead of those of the system.
    pub fn tls_ca(mut self, pem: &[u8]) -> Self {
        self.login.tls.ca = Some(pem.into());
        self
    }

    /// Sets the client certificate and its key (both PEM).
    pub fn tls_client(mut self, certificate: &[u8], key: &[u8]) -> Self {
        self.login.tls.client = Some((certificate.into(), Secret(key.into())));
        self
    }

    /// Sets how long a decision may take; [`DEFAULT_DEADLINE`] by default.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the prefix of all keys; [`DEFAULT_PREFIX`] by default. All instances that share
    /// limits need the same one.
    pub fn key_prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets whether denials are remembered for up to a second; on by default.
    pub fn near_cache(mut self, near_cache: bool) -> Self {
        self.near_cache = near_cache;
        self
    }

    /// Sets which parts of identities are stored as a keyed hash, and the secret of the hash. All
    /// instances that share limits need the same ones. By default, API keys are hashed with an
    /// empty secret: they cannot be read, but a guess can be confirmed.
    pub fn hash_keys(mut self, which: HashKeys, secret: HashSecret) -> Self {
        self.hash_keys = which;
        self.hash_secret = secret;
        self
    }

    /// Bounds the number of requests that wait at a time, in all processes together.
    pub fn max_cluster_waits(mut self, max: u32) -> Self {
        self.max_waits = Some(max);
        self
    }

    /// Decides by this clock, without the expiry of keys. For tests: it runs another script than
    /// production.
    #[cfg(feature = "injected-time")]
    pub fn injected_clock(mut self, clock: fluxgate_core::ManualClock) -> Self {
        self.time.clock = Some(clock);
        self
    }

    /// Builds the store and connects; fails if the server cannot be reached.
    pub async fn connect(self) -> Result<RedisStore, ConnectError> {
        let store = self.build()?;
        let servers = store.servers();
        // Connecting may take longer than a decision.
        let timeout = CONNECT_TIMEOUT.max(servers.timeout);
        servers.ping(Instant::now() + timeout).await?;
        Ok(store)
    }

    /// Records what leases do, in a new file of the directory, for tests. The default is the
    /// directory in the environment variable `FLUXGATE_LEASE_TRACE`, if it is set.
    #[cfg(feature = "lease-trace")]
    pub fn lease_trace(mut self, directory: impl Into<PathBuf>) -> Self {
        self.lease_trace = Some(directory.into());
        self
    }

    /// Builds the store. It connects on first use, which must be inside a Tokio runtime.
    pub fn build(mut self) -> Result<RedisStore, ConnectError> {
        if let Some(path) = &self.password_file {
            self.login.password = Some(read_secret(path)?);
        }
        self.sentinel_login.tls = self.login.tls.clone();
        let endpoints = |login: &Login| {
            let endpoint = |url: &String| {
                Endpoint::new(url, login).map_err(|cause| ConnectError::Url {
                    url: without_secrets(url),
                    cause: cause.to_string(),
                })
            };
            self.urls
                .iter()
                .map(endpoint)
                .collect::<Result<Vec<_>, _>>()
        };
        let servers = endpoints(&self.login)?;
        let Some(first) = servers.first().cloned() else {
            return Err(ConnectError::NoUrl);
        };
        let events = Arc::<Events>::default();
        let node = |source| Node::new(source, Arc::clone(&events));
        let cluster = |servers| Cluster::new(servers, Arc::clone(&events));
        let known = ConfiguredServers::Known;
        let configured = match &self.topology {
            Topology::Standalone => known(ServerKind::single(node(ServerLocation::Fixed(first)))),
            Topology::Cluster => known(ServerKind::Cluster(cluster(servers))),
            // Needs no answer of the first one, which may be down.
            Topology::Auto if servers.len() > 1 => known(ServerKind::Cluster(cluster(servers))),
            Topology::Auto => ConfiguredServers::Detect(
                node(ServerLocation::Fixed(first)),
                cluster(servers),
                OnceCell::new(),
            ),
            Topology::Sentinel { master } => {
                let sentinels = endpoints(&self.sentinel_login)?;
                let events = Arc::clone(&events);
                let sentinels = Sentinels::new(sentinels, first, master.clone(), events);
                known(ServerKind::single(node(ServerLocation::Sentinels(
                    sentinels,
                ))))
            }
        };
        let naming = KeyNaming::new(&self.prefix)?.hashing(self.hash_keys, self.hash_secret);
        let servers = Arc::new(Servers::new(configured, self.deadline, self.time, events));
        let waits = self
            .max_waits
            .map(|max| Arc::new(WaitPermits::new(Arc::clone(&servers), &self.prefix, max)));
        let decider = Decider::new(servers, naming, self.near_cache);
        #[cfg(feature = "lease-trace")]
        if let Some(directory) = &self.lease_trace {
            // A test that reads the trace notices that there is none.
            let _ = decider.leases.table.trace_to(directory);
        }
        Ok(RedisStore::new(decider, waits))
    }
}

/// Why a store could not be built or connected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No URL was given.
    #[error("expected the URL of at least one server")]
    NoUrl,
    /// A URL cannot be parsed.
    #[error("`{url}` is not the URL of a server: {cause}")]
    Url {
        /// The URL, without user and password.
        url: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A password file cannot be read.
    #[error("{}: {cause}", .path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The key prefix is invalid.
    #[error(transparent)]
    Prefix(#[from] InvalidPrefix),
    /// The server cannot be reached or does not accept the login.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn read_secret(path: &Path) -> Result<Secret, ConnectError> {
    let bad = |cause: String| ConnectError::SecretFile {
        path: path.into(),
        cause,
    };
    let mut secret =
        regular_file::read(path, MAX_SECRET_BYTES).map_err(|error| bad(error.to_string()))?;
    while let Some(b'\n' | b'\r') = secret.last() {
        secret.pop();
    }
    if secret.is_empty() {
        return Err(bad("expected a password, but the file is empty".into()));
    }
    Ok(Secret(secret))
}

/// Returns a URL without user and password.
fn without_secrets(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, address))) => format!("{scheme}://…@{address}"),
        _ => url.to_owned(),
    }
}
