//! What the crate promises, through its public interface alone.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and the panic says where"
)]

mod against_model;
mod calls;
mod cancel;
mod clock_back;
mod conformance;
mod decisions;
mod invariants;
mod keys;
mod matching;
mod memory;
mod model;
mod peers;
mod rule_changes;
mod rule_fates;
mod rule_files;
mod rule_numbers;
mod rules;
mod sequences;
mod store_trouble;
mod support;
mod threads;
