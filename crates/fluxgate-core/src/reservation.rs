//! Units that a caller may use after a delay.

use std::fmt;
use std::time::Duration;

use crate::store::WaitPermit;

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
///
/// `T` is what the limiter said: a [`Permit`](crate::Permit) or a
/// [`Decision`](crate::Decision). Units in a store that must be awaited return in the
/// background, which needs the feature `tokio` and a runtime.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is cancelled"]
pub struct Reservation<T> {
    admitted: T,
    delay: Duration,
    /// Keeps the place among the requests that wait.
    _permit: WaitPermit,
    cancel: CancelOnDrop,
}

impl<T> Reservation<T> {
    pub(crate) fn new(
        admitted: T,
        delay: Duration,
        permit: WaitPermit,
        cancel: impl FnOnce() + Send + 'static,
    ) -> Self {
        Self {
            admitted,
            delay,
            _permit: permit,
            cancel: CancelOnDrop(Some(Box::new(cancel))),
        }
    }

    /// Returns how long to wait from when it was made; zero if the units can be used at once.
    /// Keep the reservation until they are used, or take the delay out of it by
    /// [`Reservation::into_delay`].
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns what the limiter said.
    pub fn get(&self) -> &T {
        &self.admitted
    }

    /// Keeps the units, and returns how long to wait before they are used.
    pub fn into_delay(mut self) -> Duration {
        self.cancel.0 = None;
        self.delay
    }

    /// Waits until the units can be used.
    #[cfg(feature = "tokio")]
    pub async fn wait(self) -> T {
        let Self {
            admitted,
            delay,
            _permit,
            mut cancel,
        } = self;
        tokio::time::sleep(delay).await;
        cancel.0 = None;
        admitted
    }
}

/// Cancels a reservation when it is dropped, unless the units are kept.
struct CancelOnDrop(Option<Box<dyn FnOnce() + Send>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = self.0.take() {
            cancel();
        }
    }
}

impl fmt::Debug for CancelOnDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CancelOnDrop")
    }
}
