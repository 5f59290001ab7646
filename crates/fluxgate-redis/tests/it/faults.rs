//! What goes wrong with one server, and what must hold then.

mod clock;
mod herd;
mod hot_key;
mod killed;
mod labels;
mod left_behind;
mod lost_reply;
mod planned_failover;
mod replies;
mod script_cache;
mod slow;
mod wrong_type;
