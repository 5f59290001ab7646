//! One decision of a request that is traced.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use fluxgate_core::Outcome;

use crate::http::Listener;
use crate::telemetry::trace_context::{Hex, TraceContext};

/// One decision of a request that is traced.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) name: &'static str,
    /// The trace, and the span that it belongs to.
    pub(super) parent: TraceContext,
    pub(super) id: Hex<8>,
    /// When it began, in nanoseconds since 1970.
    pub(super) start: u64,
    /// When it ended, in nanoseconds since 1970.
    pub(super) end: u64,
    /// `None` where no set was asked, or one that does not exist.
    pub(super) rule_set: Option<Box<str>>,
    pub(super) rule: Option<Box<str>>,
    pub(super) outcome: Outcome,
    pub(super) listener: Listener,
    pub(super) request_id: Box<str>,
}

/// An id that no other span has, short of a coincidence.
pub(super) fn next_id() -> Hex<8> {
    thread_local! {
        static IDS: (RandomState, Cell<u64>) = (RandomState::new(), Cell::new(0));
    }
    let id = IDS.with(|(random, count)| {
        count.set(count.get().wrapping_add(1));
        random.hash_one(count.get())
    });
    // All zero is no id.
    Hex(id.max(1).to_be_bytes())
}
