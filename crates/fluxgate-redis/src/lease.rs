//! The leases of one process, as a state machine without I/O or a clock.
//!
//! A process with a lease spends units of a shared limit without calling the server. A
//! [`LeaseTable`] holds the leases of a process. It decides the requests that they cover, and
//! says what to request from the server, and when. The caller sends these requests and passes
//! the replies back. Every method takes the time, in microseconds of a clock that never goes
//! back and does not stop while the machine sleeps.
//!
//! [`RedisStore`](crate::RedisStore) runs a table against Redis; `fluxgate-sim` runs many of
//! them on virtual time. The proof that the limit holds is in
//! `fluxgate_core::algorithm::grant`.

mod holder;
mod hot_keys;
mod shard;
mod table;
mod trace;

pub use holder::{GrantReply, LeaseHolder, Moment};
pub use shard::{LeaseKey, LeaseOwner};
pub use table::{
    CheckRequest, DueRequest, LeaseCounts, LeaseTable, LocalDecision, PendingRequest, is_leasable,
};
