//! What happened: counts of decisions by rule and outcome, denials, changes of rules, and who changed
//! what.
//!
//! Decisions only add to the counters and tables of their thread (`telemetry`). Once a second the
//! collector reads them. With Redis it keeps what is not yet written, and a writer sends it every
//! five seconds, for all instances; otherwise it keeps everything in the process.

mod audit;
mod audit_trail;
mod bounds;
mod changes;
mod collector;
mod counts;
mod denial_query;
mod denials;
mod denied_id;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod kept_changes;
mod query;
mod write;
mod writer;

pub(crate) use audit_trail::AuditEntry;
pub(crate) use collector::{History, HistorySources};
pub(crate) use denial_query::{DenialCursor, DenialQuery, DenialReply, DenialRow, IdentityTest};
pub(crate) use denied_id::DeniedId;
pub(crate) use error::HistoryError;
pub(crate) use query::{CountQuery, CountReply};
