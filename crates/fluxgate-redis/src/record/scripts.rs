//! The scripts of the record, and its bounds.

use std::sync::LazyLock;
use std::time::Duration;

use crate::script::Script;

/// The maximum number of rows that a minute keeps for each rule.
pub const MAX_MINUTE_ROWS: usize = 1_000;
/// How long counts per second are kept.
pub const SECONDS_KEPT: Duration = Duration::from_secs(15 * 60);

/// The maximum number of entries of the audit trail.
pub const MAX_AUDIT_ENTRIES: usize = 1_000;

/// Makes a script and its hash, which is computed once.
macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!($file)));
    };
}

script!(COUNTS, "../lua/record_counts.lua");
script!(DENIALS, "../lua/record_denials.lua");
script!(DROP_DENIALS, "../lua/drop_denials.lua");
script!(INDEX, "../lua/record_index.lua");
script!(CHANGE, "../lua/record_change.lua");
script!(AUDIT, "../lua/record_audit.lua");
