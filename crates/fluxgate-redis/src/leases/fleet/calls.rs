//! Calls on their way.

use fluxgate_core::store::Verdicts;

use super::oracle::Counter;
use crate::codec::Granted;
use crate::leases::lease_table::PendingAsk;

/// A call of an instance to the server.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) instance: usize,
    /// The start of the instance that it belongs to.
    pub(super) start: u32,
    /// The request that the server decides, unless the keeper calls.
    pub(super) request: Option<Request>,
    pub(super) asks: Vec<SentAsk>,
    /// The latency of the reply, if it comes in time.
    pub(super) back: Option<u64>,
    pub(super) verdicts: Verdicts,
    pub(super) granted: Vec<Granted>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) key: u32,
    pub(super) cost: u64,
}

#[derive(Debug)]
pub(super) struct SentAsk {
    pub(super) counter: Counter,
    pub(super) pending: PendingAsk,
}

/// All calls on their way, by number. Numbers are used again.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// With the number of events to come.
    calls: Vec<Option<(Call, u8)>>,
    free: Vec<u32>,
}

impl Calls {
    /// Adds a call that has `events` events to come.
    pub(super) fn insert(&mut self, call: Call, events: u8) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.calls.push(None);
            // Far fewer than a u32 counts are on their way at once.
            (self.calls.len() - 1) as u32
        });
        self.calls[number as usize] = Some((call, events));
        number
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Call> {
        let call = self.calls[number as usize].as_mut();
        call.map(|(call, _)| call)
    }

    /// Notes that one of its events has come. The last one removes it.
    pub(super) fn done(&mut self, number: u32) {
        let place = &mut self.calls[number as usize];
        let Some((_, events)) = place else {
            return;
        };
        *events -= 1;
        if *events == 0 {
            *place = None;
            self.free.push(number);
        }
    }
}
