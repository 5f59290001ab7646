//! A store for `fluxgate-core` in Redis or Valkey, which several processes share.
//!
//! ```no_run
//! use fluxgate_core::{Quota, SharedKeyedLimiter};
//! use fluxgate_redis::RedisStore;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
//!     let logins = SharedKeyedLimiter::new("logins", Quota::per_minute(5), store);
//!     match logins.check("ann").await {
//!         Ok(permit) => println!("go on, {} left", permit.remaining),
//!         Err(denied) => println!("{denied}"), // the limit is exceeded; retry after 100ms
//!     }
//!     Ok(())
//! }
//! ```
//!
//! A [`RedisStore`] is a [`Store`](fluxgate_core::Store), so every limiter of
//! `fluxgate-core` that takes one can use it, and so can the layer of `fluxgate-tower`:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use fluxgate_core::{Limiter, OnError, Quota, RequestContext, Rule, RuleSet};
//! use fluxgate_redis::RedisStore;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let per_user = Rule::new("per-user").per_user().band(Quota::per_second(10));
//! let api = RuleSet::builder("api").rule(per_user).on_error(OnError::Allow).build()?;
//! let store = RedisStore::builder(["rediss://10.0.0.1", "rediss://10.0.0.2"])
//!     .password_file("/run/secrets/redis")
//!     .deadline(Duration::from_millis(20))
//!     .connect()
//!     .await?;
//! let limiter = Limiter::new(api, store);
//! let api_limits = limiter.rule_set("api")?;
//! let ann = RequestContext::builder().user("ann").build();
//! assert!(api_limits.check(&ann).await.allowed());
//! # Ok(())
//! # }
//! ```
//!
//! A [`RuleStore`] keeps rules on the same servers, and [`RuleStore::follow`] loads them into a
//! limiter whenever they change. [`lease`] has the state machine of leases.
//!
//! One script decides and charges all bands of all rules of a request in one round trip, by the
//! server's clock. It has the same algorithms as `fluxgate_core::algorithm`, under the
//! same names and in the same order, but only decides and writes. The core computes everything
//! else that a decision reports from the state that the script read.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `metrics` | | counts of script reloads and failovers, for the crate `metrics` |
//! | `lease-trace` | | for tests: records what leases do in files |
//! | `injected-time` | | for tests: a script that takes the time as an argument, and a store on it |
//! | `simulation` | | for the simulator of this workspace: servers in the same process |
//! | `fuzzing` | | functions for the fuzz targets of this workspace |
//!
//! Features are additive. The crate needs Rust 1.93 and a Tokio runtime.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]

mod back_off;
mod batch;
mod breaker;
mod builder;
mod cluster;
mod codec;
mod deadlines;
mod decider;
mod deployment_secret;
mod endpoint;
mod error;
mod event_log;
mod events;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hash_slots;
mod heartbeats;
mod holds;
mod identity_hash;
#[cfg(feature = "injected-time")]
pub mod injected_time;
mod keys;
pub mod lease;
mod lease_client;
mod lease_keeper;
mod lock;
mod near_cache;
mod node;
mod per_runtime;
pub mod reason;
pub mod record;
mod rule_store;
mod script;
mod sentinel;
mod servers;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod store;
mod usage_record;
mod wait_permits;

pub use back_off::BackOff;
pub use breaker::BreakerState;
pub use builder::{ConnectError, DEFAULT_DEADLINE, RedisStoreBuilder, Topology};
pub use deployment_secret::DeploymentSecret;
pub use event_log::{
    EventId, EventLog, InvalidEventId, LoggedEvent, MAX_EVENTS, ShareReport, ShareState,
};
pub use heartbeats::{Heartbeat, Heartbeats};
pub use identity_hash::{HashKeys, HashSecret};
pub use keys::{DEFAULT_PREFIX, InvalidPrefix, KeyNaming};
pub use rule_store::{
    FollowError, MAX_RULE_BYTES, PastChange, Precondition, RELOAD_CHANNEL, RuleChange, RuleStore,
    RuleSubscription, StoredRules, StoredSet, WriteOutcome, etag_of,
};
pub use store::RedisStore;
pub use usage_record::{HourlyUnits, RuleHour, UsageBatch, UsageRecord};

/// Compiles the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
