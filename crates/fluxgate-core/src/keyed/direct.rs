//! One limit without keys.

use std::time::Duration;

use super::{Denied, KeyBytes, KeyedLimiter, Permit, conclude_one};
use crate::clock::{Clock, SystemClock};
use crate::memory::{KeyHandle, MemoryStore, Retention};
use crate::quota::Quota;
use crate::reservation::Reservation;

/// Limits all calls together, in this process.
///
/// ```
/// use fluxgate_core::{DirectLimiter, Quota};
///
/// let limiter = DirectLimiter::new(Quota::per_second(1));
/// assert!(limiter.check().is_ok());
/// assert!(limiter.check().is_err());
/// ```
///
/// It takes the same quotas as a [`KeyedLimiter`]. Clones share their state.
#[derive(Debug)]
pub struct DirectLimiter<C = SystemClock> {
    keyed: KeyedLimiter<C>,
    /// The counter, if there is one quota only.
    single: Option<KeyHandle>,
}

impl<C> Clone for DirectLimiter<C> {
    fn clone(&self) -> Self {
        Self {
            keyed: self.keyed.clone(),
            single: self.single.clone(),
        }
    }
}

impl DirectLimiter {
    /// Creates a limiter with one quota, or several.
    pub fn new(quotas: impl IntoIterator<Item = Quota>) -> Self {
        Self::with_clock(quotas, SystemClock::default())
    }
}

impl<C: Clock> DirectLimiter<C> {
    /// Creates a limiter on any clock.
    pub fn with_clock(quotas: impl IntoIterator<Item = Quota>, clock: C) -> Self {
        let quotas: Vec<Quota> = quotas.into_iter().collect();
        // The store has room for all counters, one for each quota, so it evicts none.
        let store = MemoryStore::new(clock, quotas.len(), Retention::UntilFull);
        let keyed = KeyedLimiter::with_store(quotas, store);
        let single = match &*keyed.0.bands {
            [band] => Some(keyed.store().handle(&KeyBytes::of(&()).0, band)),
            _ => None,
        };
        Self { keyed, single }
    }

    /// Takes a unit, if there is one.
    #[inline]
    pub fn check(&self) -> Result<Permit, Denied> {
        self.check_n(1)
    }

    /// Takes `units` together, if there are as many.
    #[inline]
    pub fn check_n(&self, units: u32) -> Result<Permit, Denied> {
        match &self.single {
            Some(handle) => { self.keyed.store() }.take_by(handle, units.into(), conclude_one),
            None => self.keyed.check_n(&(), units),
        }
    }

    /// Returns what [`DirectLimiter::check`] would return, and takes nothing.
    pub fn peek(&self) -> Result<Permit, Denied> {
        self.keyed.peek(&())
    }

    /// Returns what [`DirectLimiter::check_n`] would return, and takes nothing.
    pub fn peek_n(&self, units: u32) -> Result<Permit, Denied> {
        self.keyed.peek_n(&(), units)
    }

    /// Returns units, up to the full quota. Returns how many are left then.
    pub fn refund(&self, units: u32) -> u32 {
        self.keyed.refund(&(), units)
    }

    /// Makes the quota full again. Returns whether anything was used.
    pub fn reset(&self) -> bool {
        self.keyed.reset(&())
    }

    /// Takes a unit now, or reserves one that returns within `max_wait`. Reservations are
    /// served in their order.
    pub fn reserve(&self, max_wait: Duration) -> Result<Reservation<Permit>, Denied> {
        self.reserve_n(1, max_wait)
    }

    /// Takes `units` together now, or reserves as many that return within `max_wait`.
    pub fn reserve_n(&self, units: u32, max_wait: Duration) -> Result<Reservation<Permit>, Denied> {
        self.keyed.reserve_n(&(), units, max_wait)
    }

    /// Waits until a unit is available, and takes it. Callers are served in their order, if
    /// the quotas are buckets.
    #[cfg(feature = "tokio")]
    pub async fn until_ready(&self) -> Permit {
        self.keyed.until_ready(&()).await
    }

    /// Waits until `units` are available together, and takes them. Fails if they never are,
    /// because a quota has fewer.
    #[cfg(feature = "tokio")]
    pub async fn until_n_ready(&self, units: u32) -> Result<Permit, Denied> {
        self.keyed.until_n_ready(&(), units).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_counter_is_evicted_for_another() {
        let limiter = DirectLimiter::new(vec![Quota::per_hour(2); 300]);
        assert!(limiter.check().is_ok());
        assert_eq!(limiter.keyed.store().len(), 300);
    }
}
