//! A store of your own: counters in a `HashMap`, behind one lock.
//!
//! `CounterTable` decides; this file says where counters and holds are kept. A store on a
//! database has the same shape: each method is a transaction instead of a lock.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fluxgate_core::store::{
    Charged, Checks, Counter, CounterTable, HoldId, HoldRecord, Micros, Settled, Settlement,
    Subject, Timestamp, Verdicts,
};
use fluxgate_core::{Band, Clock, Store, StoreError};

/// A store that keeps all counters of this process in one `HashMap`.
#[derive(Debug, Default)]
pub struct HashMapStore<C> {
    clock: C,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counters: Counters,
    holds: HashMap<HoldId, HoldRecord>,
}

/// The counters, by subject and band.
#[derive(Debug, Default)]
struct Counters(HashMap<(Box<[u8]>, u64), Counter>);

impl CounterTable for Counters {
    fn get(&self, subject: Subject<'_>, band: &Band) -> Option<Counter> {
        self.0.get(&(subject.bytes.into(), band.tag())).cloned()
    }

    fn set(&mut self, subject: Subject<'_>, band: &Band, counter: Option<Counter>) {
        let key = (subject.bytes.into(), band.tag());
        match counter {
            Some(counter) => self.0.insert(key, counter),
            None => self.0.remove(&key),
        };
    }
}

impl<C: Clock> HashMapStore<C> {
    /// Creates an empty store on this clock.
    pub fn new(clock: C) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// Locks the state, and reads the clock once for the whole call.
    fn begin(&self) -> (MutexGuard<'_, State>, Timestamp) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state, self.clock.now())
    }
}

impl<C: Clock> Store for HashMapStore<C> {
    fn time(&self) -> Timestamp {
        self.clock.now()
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    async fn decide(&self, checks: &Checks<'_>) -> Result<Verdicts, StoreError> {
        let (mut state, now) = self.begin();
        let (verdicts, hold) = state.counters.decide(checks, now);
        if let Some(hold) = hold {
            state.holds.retain(|_, hold| hold.is_needed(now));
            state.holds.insert(hold.id(), hold);
        }
        Ok(verdicts)
    }

    async fn refund(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
    ) -> Result<Verdicts, StoreError> {
        let (mut state, now) = self.begin();
        Ok(state.counters.refund(subject, bands, units, now))
    }

    async fn cancel(
        &self,
        subject: Subject<'_>,
        bands: &[Band],
        units: u64,
        charged: &[Charged],
    ) -> Result<(), StoreError> {
        let (mut state, now) = self.begin();
        state.counters.cancel(subject, bands, units, charged, now);
        Ok(())
    }

    async fn settle(
        &self,
        hold: HoldId,
        settlement: Settlement<'_>,
    ) -> Result<Option<Settled>, StoreError> {
        let (mut state, now) = self.begin();
        let State { counters, holds } = &mut *state;
        let record = holds.get(&hold);
        let settled = record.and_then(|record| counters.settle(record, settlement, now));
        if settled.is_some() {
            holds.remove(&hold);
        }
        Ok(settled)
    }

    async fn renew(&self, holds: &[(HoldId, Micros)]) -> Result<Vec<bool>, StoreError> {
        let (mut state, now) = self.begin();
        let state = &mut *state;
        let renew = |(id, span): &(HoldId, Micros)| {
            let record = state.holds.get_mut(id);
            record.is_some_and(|record| state.counters.renew(record, *span, now))
        };
        Ok(holds.iter().map(renew).collect())
    }

    async fn reset(&self, subject: Subject<'_>, bands: &[Band]) -> Result<u64, StoreError> {
        let (mut state, _) = self.begin();
        Ok(state.counters.reset(subject, bands))
    }

    async fn reset_rule(&self, rule: Subject<'_>) -> Result<u64, StoreError> {
        let (mut state, _) = self.begin();
        let counters = &mut state.counters.0;
        let before = counters.len();
        counters.retain(|(subject, _), _| !subject.starts_with(rule.bytes));
        Ok((before - counters.len()) as u64)
    }
}
