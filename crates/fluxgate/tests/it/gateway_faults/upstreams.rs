//! Upstreams that are unreachable, slow or failing.

mod no_retries;
mod slow;
mod unreachable;
