//! Upstreams that are down, slow or dying.

mod down;
mod once;
mod slow;
