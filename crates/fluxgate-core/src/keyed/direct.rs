//! One limit without keys.

use std::time::Duration;

use super::{Denied, KeyedLimiter, Permit};
use crate::clock::{Clock, SystemClock};
use crate::memory::{MemoryStore, Retention};
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
#[derive(Clone, Debug)]
pub struct DirectLimiter<C = SystemClock>(KeyedLimiter<C>);

impl DirectLimiter {
    /// Creates a limiter with one quota, or several.
    pub fn new(quotas: impl IntoIterator<Item = Quota>) -> Self {
        Self::with_clock(quotas, SystemClock::default())
    }
}

impl<C: Clock + 'static> DirectLimiter<C> {
    /// Creates a limiter on any clock.
    pub fn with_clock(quotas: impl IntoIterator<Item = Quota>, clock: C) -> Self {
        let quotas: Vec<Quota> = quotas.into_iter().collect();
        // The store has room for all counters, one for each quota, so it evicts none.
        let store = MemoryStore::new(clock, quotas.len(), Retention::UntilFull);
        Self(KeyedLimiter::with_store(quotas, store))
    }

    /// Takes a unit, if there is one.
    #[inline]
    pub fn check(&self) -> Result<Permit, Denied> {
        self.0.check(&())
    }

    /// Takes `units` together, if there are as many.
    #[inline]
    pub fn check_n(&self, units: u32) -> Result<Permit, Denied> {
        self.0.check_n(&(), units)
    }

    /// Returns what [`DirectLimiter::check`] would return, and takes nothing.
    pub fn peek(&self) -> Result<Permit, Denied> {
        self.0.peek(&())
    }

    /// Gives back units that were taken and not used. Returns how many are left then.
    pub fn refund(&self, units: u32) -> u32 {
        self.0.refund(&(), units)
    }

    /// Makes the quota full again. Returns whether anything was used.
    pub fn reset(&self) -> bool {
        self.0.reset(&())
    }

    /// Takes `units` together now, or reserves as many that return within `max_wait`.
    pub fn reserve(&self, units: u32, max_wait: Duration) -> Result<Reservation<Permit>, Denied> {
        self.0.reserve_n(&(), units, max_wait)
    }

    /// Waits until a unit is available, and takes it. Callers are served in their order, if
    /// the quotas are buckets.
    #[cfg(feature = "tokio")]
    pub async fn until_ready(&self) -> Permit {
        self.0.until_ready(&()).await
    }

    /// Waits until `units` are available together, and takes them. Fails if they never are,
    /// because a quota has fewer.
    #[cfg(feature = "tokio")]
    pub async fn until_n_ready(&self, units: u32) -> Result<Permit, Denied> {
        self.0.until_n_ready(&(), units).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_counter_is_evicted_for_another() {
        let limiter = DirectLimiter::new(vec![Quota::per_hour(2); 300]);
        assert!(limiter.check().is_ok());
        assert_eq!(limiter.0.store().len(), 300);
    }
}
