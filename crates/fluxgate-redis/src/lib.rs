//! FluxGate's state in Redis or Valkey.
//!
//! One script decides and charges all bands of all rules of a request in one
//! round trip, by the server's own clock. Its Lua has the same algorithms, under
//! the same names and in the same order, as `fluxgate_core::algorithm`; it only
//! decides and writes. What is reported of a decision is worked out here, by
//! the core, from the state that the script read.
#![deny(missing_docs)]

mod across_slots;
mod batch;
mod breaker;
mod builder;
mod cluster;
mod codec;
mod endpoint;
mod error;
mod events;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod identity_hash;
#[cfg(feature = "injected-time")]
pub mod injected_time;
mod jitter;
mod key_name;
mod near_cache;
mod node;
mod parts;
pub mod reason;
mod refusals;
mod rule_store;
mod script;
mod sentinel;
mod store;
mod subscription;
mod sweep;
mod taken;
mod waits;

pub use breaker::BreakerState;
pub use builder::{ConnectError, DEFAULT_DEADLINE, RedisStoreBuilder, Topology};
pub use identity_hash::{HashKeys, HashSecret};
pub use key_name::{BadPrefix, DEFAULT_PREFIX, Naming};
pub use rule_store::{
    Expected, MOST_RULE_BYTES, RuleChanges, RuleStore, StoredRules, StoredSet, Written, etag_of,
};
pub use store::RedisStore;
pub use waits::WaitPlace;
