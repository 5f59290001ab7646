//! The reasons of failures of Redis, as metrics label them.

use fluxgate_core::store::Reason;

/// Any failure without a reason of its own.
pub const REDIS_ERROR: Reason = Reason::new("redis_error");
/// The key holds a value of another type.
pub const BAD_TYPES: Reason = Reason::new("bad_types");
/// The circuit breaker is open, because the server kept failing.
pub const CIRCUIT_OPEN: Reason = Reason::new("circuit_open");
/// The server is out of memory.
pub const OOM: Reason = Reason::new("oom");
/// The server denies writes because it cannot save.
pub const MISCONF: Reason = Reason::new("misconf");
/// The server requires a password.
pub const NOAUTH: Reason = Reason::new("noauth");
/// The user lacks a permission.
pub const NOPERM: Reason = Reason::new("noperm");
/// The server is still loading its data.
pub const LOADING: Reason = Reason::new("loading");
/// The server is busy with a script.
pub const BUSY: Reason = Reason::new("busy");
/// The server is a replica.
pub const READONLY: Reason = Reason::new("readonly");
/// The cluster does not serve all hash slots.
pub const CLUSTER_DOWN: Reason = Reason::new("cluster_down");

/// All reasons of this store, including those of every store.
pub const ALL: [Reason; 13] = [
    REDIS_ERROR,
    Reason::TIMEOUT,
    Reason::BAD_RESPONSE,
    BAD_TYPES,
    CIRCUIT_OPEN,
    OOM,
    MISCONF,
    NOAUTH,
    NOPERM,
    LOADING,
    BUSY,
    READONLY,
    CLUSTER_DOWN,
];
