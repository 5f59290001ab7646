//! A store of your own: counters in a `HashMap`, behind one lock.
//!
//! `CounterTable` decides; this file says where counters and holds are kept.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fluxgate_core::store::{
    Charged, Checks, Counter, CounterTable, HoldId, HoldRecord, Micros, Settled, Settlement,
    Subject, Timestamp, Verdicts,
};
use fluxgate_core::{Band, Clock, Limit, Store, StoreError};

/// The number of counters from which on expired ones are deleted.
const FIRST_SWEEP: usize = 1_000;

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

/// The bytes of a subject, and the tag of a band.
type Key = (Box<[u8]>, u64);

#[derive(Debug, Default)]
struct Counters {
    /// The counters, each with the limit that it was written for.
    table: HashMap<Key, (Counter, Limit)>,
    /// How many were left when expired ones were last deleted.
    swept: usize,
}

impl CounterTable for Counters {
    fn get(&self, subject: Subject<'_>, band: &Band) -> Option<Counter> {
        let entry = self.table.get(&(subject.bytes.into(), band.tag()));
        entry.map(|(counter, _)| counter.clone())
    }

    fn set(&mut self, subject: Subject<'_>, band: &Band, counter: Option<Counter>) {
        let key = (subject.bytes.into(), band.tag());
        match counter {
            Some(counter) => self.table.insert(key, (counter, *band.limit())),
            None => self.table.remove(&key),
        };
    }
}

impl Counters {
    /// Deletes expired counters whenever the table has doubled, so that it does not grow for ever
    /// and a call costs the same on average.
    fn sweep(&mut self, now: Timestamp) {
        if self.table.len() >= FIRST_SWEEP.max(2 * self.swept) {
            let is_needed = |(counter, limit): &(Counter, Limit)| !counter.is_expired(limit, now);
            self.table.retain(|_, entry| is_needed(entry));
            self.swept = self.table.len();
        }
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
        state.counters.sweep(now);
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
        let counters = &mut state.counters.table;
        let before = counters.len();
        counters.retain(|(subject, _), _| !subject.starts_with(rule.bytes));
        Ok((before - counters.len()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use fluxgate_core::{ManualClock, Quota, SharedKeyedLimiter};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_store_forgets_keys_whose_quota_is_full() {
        let clock = ManualClock::default();
        let store = Arc::new(HashMapStore::new(clock.clone()));
        let quotas = [Quota::per_second(1), Quota::per_minute(9)];
        let limiter = SharedKeyedLimiter::new("l", quotas, Arc::clone(&store));
        for key in 0..50_000_u32 {
            assert!(limiter.check(key.to_be_bytes()).await.is_ok());
            clock.advance(Duration::from_millis(100));
        }
        // A key is needed for 60 s / 9, so two counters of some 70 keys are.
        assert!(store.begin().0.counters.table.len() <= FIRST_SWEEP);
    }
}
