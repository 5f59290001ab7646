//! Clients that would rather be somebody else, and text that would rather be
//! something else.

mod addresses;
mod identities;
mod logs;
