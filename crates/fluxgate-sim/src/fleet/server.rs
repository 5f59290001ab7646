//! The server: the state that all instances share.

use std::collections::HashMap;

use fluxgate_core::Timestamp;
use fluxgate_core::algorithm::{Cell, LeaseRequest, Outstanding, balance_of, grant};
use fluxgate_core::lease::BandLease;
use fluxgate_core::store::{Checks, Mode, Verdict, Verdicts};
use smallvec::SmallVec;

use super::config::Fault;
use crate::clock::Clock;
use crate::oracle::Counter;
use fluxgate_redis::lease::GrantReply;

/// The server.
#[derive(Debug)]
pub(super) struct Server {
    clock: Clock,
    fault: Fault,
    cells: Vec<Option<Cell>>,
    outstanding: HashMap<usize, Outstanding>,
}

impl Server {
    pub(super) fn new(clock: Clock, fault: Fault, counters: usize) -> Self {
        Self {
            clock,
            fault,
            cells: vec![None; counters],
            outstanding: HashMap::new(),
        }
    }

    /// Returns its time at a virtual time.
    pub(super) fn time(&self, now: u64) -> u64 {
        self.clock.at(now)
    }

    /// Loses all data.
    pub(super) fn lose_data(&mut self) {
        self.cells.fill(None);
        self.outstanding.clear();
    }

    /// Decides all checks of a request: charges all or none.
    pub(super) fn decide(
        &mut self,
        checks: &Checks<'_>,
        counters: &[Counter],
        now: u64,
    ) -> Verdicts {
        let time = Timestamp::saturating_from_micros(self.time(now));
        let assessed = checks.list().iter().zip(counters).map(|(check, counter)| {
            let limit = match self.fault {
                Fault::SharesAll => check.band.limit(),
                Fault::None | Fault::ForgetsOutstanding => check.band.shared_limit(),
            };
            Cell::assess(
                limit,
                self.cells[counter.index],
                time,
                check.cost,
                Mode::Take,
            )
        });
        let assessed: SmallVec<[_; 4]> = assessed.collect();
        let verdicts: Verdicts = assessed.iter().map(|assessed| assessed.verdict).collect();
        let passes = verdicts.iter().all(Verdict::passes);
        for (assessed, counter) in assessed.iter().zip(counters) {
            let written = if passes {
                assessed.to_write()
            } else {
                assessed.corrected.as_ref()
            };
            if let Some(cell) = written {
                self.cells[counter.index] = Some(*cell);
            }
        }
        verdicts
    }

    /// Answers a lease request.
    pub(super) fn grant(
        &mut self,
        lease: &BandLease,
        counter: Counter,
        request: &LeaseRequest,
        now: u64,
    ) -> GrantReply {
        let time = Timestamp::saturating_from_micros(self.time(now));
        let outstanding = self.outstanding.entry(counter.index).or_default();
        let stored = self.cells[counter.index];
        let (grant, cell) = grant(lease, stored, outstanding, time, request);
        if self.fault == Fault::ForgetsOutstanding {
            *outstanding = Outstanding::default();
        }
        self.cells[counter.index] = cell;
        GrantReply {
            grant,
            balance: balance_of(lease.shared(), cell, time),
        }
    }
}
