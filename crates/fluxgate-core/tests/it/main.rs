//! The promises of the crate, tested through its public interface.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and the panic says where"
)]

mod actions;
mod against_model;
mod calendar;
mod calls;
mod cancel;
mod charge_always;
mod clock_back;
mod conformance;
mod decisions;
mod examples;
mod explain;
mod groups;
mod holds;
mod invariants;
mod keyed;
mod keys;
mod lists;
mod matching;
mod memory;
mod memory_logs;
mod memory_shares;
mod model;
mod notify;
mod observers;
mod on_lease;
mod override_until;
mod own_limits;
mod peers;
mod reports;
mod rule_builder;
mod rule_changes;
mod rule_diffs;
mod rule_files;
mod rule_forms;
mod rule_leases;
mod rule_numbers;
mod rule_outcomes;
mod rule_verdicts;
mod rules;
mod sequences;
mod serde;
mod settlements;
mod shared_keyed;
mod store_failures;
mod support;
mod threads;
mod waiting;
mod warnings;
mod watch;
