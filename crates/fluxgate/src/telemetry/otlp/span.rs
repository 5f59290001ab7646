//! A span: one decision about a traced request.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use fluxgate_core::Outcome;
use fluxgate_http::server::Listener;

use crate::telemetry::trace_context::{Hex, TraceContext};

/// One decision about a traced request.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) name: &'static str,
    /// The trace and the caller's span.
    pub(super) parent: TraceContext,
    pub(super) id: Hex<8>,
    /// In nanoseconds since 1970.
    pub(super) start: u64,
    /// In nanoseconds since 1970.
    pub(super) end: u64,
    /// `None` for an ad-hoc limit, or if the set does not exist.
    pub(super) rule_set: Option<Box<str>>,
    pub(super) rule: Option<Box<str>>,
    pub(super) outcome: Outcome,
    pub(super) listener: Listener,
    pub(super) request_id: Box<str>,
}

/// Returns a random id.
pub(super) fn next_id() -> Hex<8> {
    thread_local! {
        static IDS: (RandomState, Cell<u64>) = (RandomState::new(), Cell::new(0));
    }
    let id = IDS.with(|(random, count)| {
        count.set(count.get().wrapping_add(1));
        random.hash_one(count.get())
    });
    // Zero is not a valid id.
    Hex(id.max(1).to_be_bytes())
}
