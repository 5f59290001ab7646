//! Deterministic simulation of FluxGate on virtual time.
//!
//! Time passes from event to event, so a run takes only as long as its decisions, and every
//! random choice comes from a seed.

mod clock;
pub mod fleet;
mod oracle;
mod random;
