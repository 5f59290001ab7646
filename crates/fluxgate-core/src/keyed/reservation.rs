//! Units that a caller may use after a delay.

use std::time::Duration;

use smallvec::SmallVec;

use super::{KeyBytes, KeyedLimiter, Permit};
use crate::algorithm::Charged;
use crate::band::Band;
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
pub struct Reservation<C: Clock = SystemClock> {
    pub(super) permit: Permit,
    pub(super) delay: Duration,
    pub(super) limiter: KeyedLimiter<C>,
    pub(super) key: KeyBytes,
    pub(super) bands: Box<[Band]>,
    pub(super) units: u32,
    /// Where the units of each band went.
    pub(super) charged: SmallVec<[Charged; 4]>,
    pub(super) is_kept: bool,
}

impl<C: Clock> Reservation<C> {
    /// Returns how long to wait from when it was made; zero if the units can be used at once.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns what is left after this reservation.
    pub fn permit(&self) -> Permit {
        self.permit
    }

    /// Keeps the units, and returns how long to wait before they are used.
    pub fn into_delay(mut self) -> Duration {
        self.is_kept = true;
        self.delay
    }

    /// Waits until the units can be used.
    #[cfg(feature = "tokio")]
    pub async fn wait(mut self) -> Permit {
        tokio::time::sleep(self.delay).await;
        self.is_kept = true;
        self.permit
    }
}

impl<C: Clock> Drop for Reservation<C> {
    fn drop(&mut self) {
        if !self.is_kept {
            let (store, subject) = (self.limiter.store(), self.key.subject());
            store.cancel_now(subject, &self.bands, self.units.into(), &self.charged);
        }
    }
}
