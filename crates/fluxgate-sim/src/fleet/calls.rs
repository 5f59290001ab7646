//! Calls on their way.

use fluxgate_core::store::Verdicts;

use crate::oracle::Counter;
use fluxgate_redis::lease::{GrantReply, PendingRequest};

/// A call of an instance to the server.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) instance: usize,
    /// The start of the instance that it belongs to.
    pub(super) start: u32,
    /// The request that the server decides, unless the keeper calls.
    pub(super) decision: Option<ServerDecision>,
    pub(super) lease_requests: Vec<SentLeaseRequest>,
    /// The latency of the reply, if it comes in time.
    pub(super) back: Option<u64>,
    pub(super) verdicts: Verdicts,
    pub(super) grants: Vec<GrantReply>,
}

/// A request that the server decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerDecision {
    pub(super) key: u32,
    pub(super) cost: u64,
}

/// A lease request of one counter.
#[derive(Debug)]
pub(super) struct SentLeaseRequest {
    pub(super) counter: Counter,
    pub(super) pending: PendingRequest,
}

/// All calls on their way, by number. Numbers are reused.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Each with the number of its events to come.
    calls: Vec<Option<(Call, u8)>>,
    free: Vec<u32>,
}

impl Calls {
    /// Adds a call that has `events` events to come.
    pub(super) fn insert(&mut self, call: Call, events: u8) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.calls.push(None);
            // Far fewer than 2^32 calls are on their way at once.
            (self.calls.len() - 1) as u32
        });
        self.calls[number as usize] = Some((call, events));
        number
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Call> {
        let call = self.calls[number as usize].as_mut();
        call.map(|(call, _)| call)
    }

    /// Counts one event of a call as past. The last one removes the call.
    pub(super) fn finish_event(&mut self, number: u32) {
        let entry = &mut self.calls[number as usize];
        let Some((_, events)) = entry else {
            return;
        };
        *events -= 1;
        if *events == 0 {
            *entry = None;
            self.free.push(number);
        }
    }
}
