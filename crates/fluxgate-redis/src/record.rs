//! The record of what happened: counts of decisions, denials, and changes of rules, which all
//! instances write and any of them reads.
//!
//! | key | value |
//! |---|---|
//! | `<prefix>:1:history:s:<minute>:<set>/<rule>` | a hash: counts by second and outcome |
//! | `<prefix>:1:history:m:<hour>:<set>/<rule>` | a hash: counts by minute and outcome |
//! | `<prefix>:1:history:d:<minute>:<set>/<rule>` | a hash: rows of denials by identity |
//! | `<prefix>:1:history:rules` | a sorted set: the rules that have counts, by the last hour |
//! | `<prefix>:1:history:denied:<hour>` | a sorted set: the minutes and rules that have denials, by the number of their rows |
//! | `<prefix>:1:history:dropped:<hour>` | a sorted set: the same, by the number of denials without a row |
//! | `<prefix>:1:history:changes` | a list of changes of rule sets |
//! | `<prefix>:1:history:audit` | a list: who changed what through the API, the newest first |
//!
//! Every key expires. No decision waits for any of this, and no failure of it reaches the circuit
//! breaker. A hash of counts or denials holds, for each instance, the number of the last batch
//! that was added to it, so a batch can be sent again until the server has confirmed it.

mod batch;
mod client;
mod entries;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod keys;
mod read;
mod scripts;

pub use batch::RecordBatch;
pub use client::Record;
pub use entries::{DenialBlock, RecordedChange, RecordedCount, RecordedDenial};
pub use keys::{RecordedRule, Step};
pub use scripts::{MAX_AUDIT_ENTRIES, MAX_MINUTE_ROWS, SECONDS_KEPT};
