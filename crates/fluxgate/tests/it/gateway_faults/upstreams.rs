//! Upstreams that are unreachable, slow or failing.

mod http2;
mod no_retries;
mod slow;
mod unreachable;
