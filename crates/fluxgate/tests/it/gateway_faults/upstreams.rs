//! Upstreams that are unreachable, slow or failing.

mod http2;
mod no_retries;
mod nothing_leaks;
mod slow;
mod unreachable;
