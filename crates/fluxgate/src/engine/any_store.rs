//! The store that the config names.

use std::sync::Arc;

use fluxgate_core::{DynStore, MemoryStore};
use fluxgate_redis::{BreakerState, ConnectError, HashSecret, RedisStore};

use crate::config::{self, Config, Secrets};
use crate::telemetry::StoreGauges;

/// The store of the state.
#[derive(Debug)]
pub(crate) enum AnyStore {
    /// The memory of this process.
    Memory(Arc<MemoryStore>),
    /// Redis.
    Redis(Arc<RedisStore>),
}

impl AnyStore {
    /// Creates the store that the config names. Redis is connected to at the first call.
    pub(crate) fn new(config: &Config, secrets: &Secrets) -> Result<Self, ConnectError> {
        match &config.store {
            config::Store::Memory {
                max_keys,
                max_log_events,
            } => {
                let store =
                    MemoryStore::with_max_keys(max_keys.get()).max_log_events(max_log_events.get());
                Ok(Self::Memory(Arc::new(store)))
            }
            config::Store::Redis(redis) => {
                let store = redis_store(redis, &config.keys, secrets)?;
                Ok(Self::Redis(Arc::new(store)))
            }
        }
    }

    /// Returns the store for a limiter.
    pub(crate) fn to_dyn(&self) -> DynStore {
        match self {
            Self::Memory(store) => DynStore::from(Arc::clone(store)),
            Self::Redis(store) => DynStore::from(Arc::clone(store)),
        }
    }

    /// Returns the metrics of the store.
    pub(crate) fn gauges(&self) -> StoreGauges {
        match self {
            Self::Memory(store) => StoreGauges {
                memory_keys: Some(store.len() as u64),
                ..StoreGauges::default()
            },
            Self::Redis(store) => StoreGauges {
                breaker: match store.breaker_state() {
                    BreakerState::Closed => 0,
                    BreakerState::HalfOpen => 1,
                    BreakerState::Open => 2,
                },
                script_reloads: store.script_reloads(),
                script_reload_failures: store.script_reload_failures(),
                failovers: store.failovers(),
                memory_keys: None,
                leases: Some(store.lease_counts()),
            },
        }
    }

    /// Returns the store if it is Redis.
    pub(crate) fn redis(&self) -> Option<&Arc<RedisStore>> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => Some(store),
        }
    }
}

fn redis_store(
    redis: &config::Redis,
    keys: &config::Keys,
    secrets: &Secrets,
) -> Result<RedisStore, ConnectError> {
    let urls = redis.urls.iter().map(|url| url.as_str());
    let mut builder = RedisStore::builder(urls)
        .topology(redis.topology.clone())
        .deadline(redis.deadline)
        .key_prefix(&redis.key_prefix)
        .near_cache(redis.near_cache);
    if let Some(username) = &redis.username {
        builder = builder.username(username);
    }
    // Both were read as text.
    if let Some(password) = secrets.redis_password.as_ref().and_then(|it| it.as_text()) {
        builder = builder.password(password);
    }
    if let Some(password) = secrets
        .sentinel_password
        .as_ref()
        .and_then(|it| it.as_text())
    {
        builder = builder.sentinel_password(password);
    }
    if let Some(ca) = &secrets.redis_ca {
        builder = builder.tls_ca(ca.as_bytes());
    }
    if let Some((certificate, key)) = &secrets.redis_client {
        builder = builder.tls_client(certificate.as_bytes(), key.as_bytes());
    }
    if let Some(most) = redis.max_cluster_waits {
        builder = builder.max_cluster_waits(most.get());
    }
    let secret = secrets.hash_secret.as_ref();
    let secret = HashSecret::new(secret.map_or(b"", |secret| secret.as_bytes()));
    builder.hash_keys(keys.hash_keys, secret).build()
}
