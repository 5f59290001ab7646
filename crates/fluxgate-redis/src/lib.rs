//! FluxGate's state in Redis or Valkey.
//!
//! One script decides and charges all bands of all rules of a request in one
//! round trip, by the server's clock. Its Lua has the same algorithms, under the
//! same names and in the same order, as `fluxgate_core::internals::algorithm`, but only
//! decides and writes. The core works out everything else that is reported about a
//! decision, from the state that the script read.
#![deny(missing_docs)]

mod across_slots;
mod back_off;
mod batch;
mod breaker;
mod builder;
mod cluster;
mod codec;
mod deadlines;
mod decider;
mod endpoint;
mod error;
mod events;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod identity_hash;
#[cfg(feature = "injected-time")]
pub mod injected_time;
mod keys;
mod near_cache;
mod node;
mod per_runtime;
pub mod reason;
mod rule_store;
mod script;
mod sentinel;
mod servers;
mod store;
mod subscription;
mod wait_permits;

pub use back_off::BackOff;
pub use breaker::BreakerState;
pub use builder::{ConnectError, DEFAULT_DEADLINE, RedisStoreBuilder, Topology};
pub use identity_hash::{HashKeys, HashSecret};
pub use keys::{DEFAULT_PREFIX, InvalidPrefix, KeyNaming};
pub use rule_store::{
    FollowError, MAX_RULE_BYTES, Precondition, RuleChanges, RuleStore, StoredRules, StoredSet,
    WriteOutcome, etag_of,
};
pub use store::RedisStore;
