//! The store that the config names.

use std::time::Duration;

use fluxgate_core::{
    Band, Charged, Checks, MemoryStore, Store, StoreError, Subject, Verdicts, WaitPermit,
};
use fluxgate_redis::{BreakerState, ConnectError, HashKeys, HashSecret, RedisStore, Topology};

use crate::config::{self, Config, Secrets};
use crate::telemetry::StoreGauges;

/// The store of the state.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of it, and a box would be a step more for every decision"
)]
pub(crate) enum AnyStore {
    /// The memory of this process.
    Memory(MemoryStore),
    /// Redis.
    Redis(RedisStore),
}

impl AnyStore {
    /// Creates the store that the config names. Redis is connected to at the first call.
    pub(crate) fn new(config: &Config, secrets: &Secrets) -> Result<Self, ConnectError> {
        match &config.store {
            config::Store::Memory {
                max_keys,
                max_log_events,
            } => {
                let store = MemoryStore::with_max_keys(max_keys.get());
                Ok(Self::Memory(store.max_log_events(max_log_events.get())))
            }
            config::Store::Redis(redis) => {
                Ok(Self::Redis(redis_store(redis, &config.keys, secrets)?))
            }
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
                failovers: store.failovers(),
                memory_keys: None,
            },
        }
    }

    /// Returns the store if it is Redis.
    pub(crate) fn redis(&self) -> Option<&RedisStore> {
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
        .topology(match &redis.mode {
            config::Mode::Auto => Topology::Auto,
            config::Mode::Standalone => Topology::Standalone,
            config::Mode::Cluster => Topology::Cluster,
            config::Mode::Sentinel { master, .. } => Topology::Sentinel {
                master: master.clone(),
            },
        })
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
    let secret = || HashSecret::new(secret.map_or(b"", |secret| secret.as_bytes()));
    builder = match keys.hash_keys {
        config::HashKeys::ApiKeys => builder.hash_keys(HashKeys::ApiKeys, secret()),
        config::HashKeys::All => builder.hash_keys(HashKeys::All, secret()),
        config::HashKeys::None => builder.hash_keys(HashKeys::None, secret()),
    };
    builder.build()
}

// The futures of Redis are large. They are boxed, so that calls that need not wait stay
// small.
impl Store for AnyStore {
    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        match self {
            Self::Memory(store) => store.decide(checks).await,
            Self::Redis(store) => Box::pin(store.decide(checks)).await,
        }
    }

    fn try_decide(&self, checks: &Checks<'_>, verdicts: &mut Verdicts) -> bool {
        match self {
            Self::Memory(store) => store.try_decide(checks, verdicts),
            Self::Redis(store) => store.try_decide(checks, verdicts),
        }
    }

    async fn decide_with_permit(
        &self,
        checks: &Checks<'_>,
    ) -> Result<(Verdicts, WaitPermit), StoreError> {
        match self {
            Self::Memory(store) => store.decide_with_permit(checks).await,
            Self::Redis(store) => Box::pin(store.decide_with_permit(checks)).await,
        }
    }

    async fn begin_wait(&self, longest: Duration) -> Result<Option<WaitPermit>, StoreError> {
        match self {
            Self::Memory(store) => store.begin_wait(longest).await,
            Self::Redis(store) => Box::pin(Store::begin_wait(store, longest)).await,
        }
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> Result<Verdicts, StoreError> {
        match self {
            Self::Memory(store) => store.refund(subject, bands, units).await,
            Self::Redis(store) => Box::pin(store.refund(subject, bands, units)).await,
        }
    }

    async fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.cancel(subject, bands, units, charged).await,
            Self::Redis(store) => Box::pin(store.cancel(subject, bands, units, charged)).await,
        }
    }

    async fn reset(&self, subject: Subject<'_>, bands: &[Band]) -> Result<u64, StoreError> {
        match self {
            Self::Memory(store) => store.reset(subject, bands).await,
            Self::Redis(store) => Box::pin(store.reset(subject, bands)).await,
        }
    }

    async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
        match self {
            Self::Memory(store) => store.reset_rule(rule).await,
            Self::Redis(store) => Box::pin(store.reset_rule(rule)).await,
        }
    }
}
