//! Units that a caller may use after a delay.

use std::time::Duration;

#[cfg(feature = "tokio")]
use super::Permit;
use super::Reserved;
use crate::clock::{Clock, SystemClock};

/// Units that are taken, to be used after a delay.
///
/// If it is dropped before [`Reservation::wait`] has ended, the units return, except those
/// that later reservations were queued behind.
///
/// ```
/// use std::time::Duration;
///
/// use fluxgate_core::{KeyedLimiter, Quota};
///
/// let limiter = KeyedLimiter::new(Quota::per_minute(1));
/// let now = limiter.reserve("ann", Duration::from_secs(90)).unwrap();
/// assert_eq!(now.into_delay(), Duration::ZERO);
/// let later = limiter.reserve("ann", Duration::from_secs(90)).unwrap();
/// assert!(later.delay() > Duration::from_secs(59));
/// assert!(limiter.reserve("ann", Duration::from_secs(90)).is_err());
/// drop(later);
/// assert!(limiter.reserve("ann", Duration::from_secs(90)).is_ok());
/// ```
#[derive(Debug)]
#[must_use = "a reservation that is dropped is cancelled"]
pub struct Reservation<C: Clock = SystemClock>(Option<Reserved<C>>);

impl<C: Clock> Reservation<C> {
    pub(super) fn new(reserved: Reserved<C>) -> Self {
        Self(Some(reserved))
    }

    /// Returns how long to wait from when it was made; zero if the units can be used at once.
    pub fn delay(&self) -> Duration {
        let reserved = self.0.as_ref();
        reserved.map_or(Duration::ZERO, |reserved| reserved.delay)
    }

    /// Keeps the units, and returns how long to wait before they are used.
    pub fn into_delay(mut self) -> Duration {
        self.0
            .take()
            .map_or(Duration::ZERO, |reserved| reserved.delay)
    }

    /// Waits until the units can be used.
    #[cfg(feature = "tokio")]
    pub async fn wait(mut self) -> Permit {
        tokio::time::sleep(self.delay()).await;
        let reserved = self.0.take();
        // It is there until it is waited for.
        reserved.map_or(Permit { remaining: 0 }, |reserved| reserved.permit)
    }
}

impl<C: Clock> Drop for Reservation<C> {
    fn drop(&mut self) {
        if let Some(reserved) = &self.0 {
            reserved.cancel();
        }
    }
}
