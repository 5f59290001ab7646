//! Faults of one server, and the guarantees that hold under them.

mod clock;
mod error_labels;
mod hot_key;
mod key_expiry;
mod lost_reply;
mod malformed_replies;
mod planned_failover;
mod script_cache;
mod server_killed;
mod slow_server;
mod thundering_herd;
mod wrong_type;
