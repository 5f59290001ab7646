//! Limits for keys, without rules.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::{Charged, Mode, Verdict};
use crate::band::Band;
use crate::clock::{Clock, SystemClock};
use crate::key::{RuleNumber, Subject, SubjectBytes};
use crate::memory::{KeyHandle, MemoryStore, Retention};
use crate::quota::Quota;
use crate::reservation::Reservation;
use crate::store::{Checks, Group, LocalStore, Verdicts, WaitPermit};
use crate::time::Micros;

/// Limits each key by itself, in this process.
///
/// ```
/// use fluxgate_core::{KeyedLimiter, Quota};
///
/// let limiter = KeyedLimiter::new(Quota::per_second(10).burst(2));
/// assert!(limiter.check("ann").is_ok());
/// assert!(limiter.check("ann").is_ok());
/// let denied = limiter.check("ann").unwrap_err();
/// assert!(denied.retry_after.unwrap().as_millis() <= 100);
/// assert!(limiter.check("bob").is_ok());
/// ```
///
/// Several quotas apply together: a call passes, and is charged, only if all of them allow
/// it.
///
/// ```
/// # use fluxgate_core::{KeyedLimiter, Quota};
/// let limiter = KeyedLimiter::new([Quota::per_second(10), Quota::per_day(1_000)]);
/// # assert!(limiter.check("ann").is_ok());
/// ```
///
/// A key is whatever can be hashed: a text, an address, a tuple. Only a fingerprint of it
/// is stored. The number of keys is bounded ([`MemoryStore`]): a key whose quota is full
/// again costs nothing to forget. Clones share their state.
#[derive(Debug)]
pub struct KeyedLimiter<C = SystemClock>(Arc<Inner<C>>);

#[derive(Debug)]
struct Inner<C> {
    bands: Box<[Band]>,
    store: MemoryStore<C>,
}

impl<C> Clone for KeyedLimiter<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl KeyedLimiter {
    /// Creates a limiter with one quota, or several.
    pub fn new(quotas: impl IntoIterator<Item = Quota>) -> Self {
        Self::with_store(quotas, MemoryStore::default())
    }
}

impl<C: Clock> KeyedLimiter<C> {
    /// Creates a limiter on a store with its own clock and bounds.
    pub fn with_store(
        quotas: impl IntoIterator<Item = Quota>,
        store: MemoryStore<C>,
    ) -> KeyedLimiter<C> {
        let bands = bands_of(quotas).collect();
        KeyedLimiter(Arc::new(Inner { bands, store }))
    }

    /// Creates a limiter on any clock, such as a [`ManualClock`](crate::ManualClock) in tests.
    pub fn with_clock(quotas: impl IntoIterator<Item = Quota>, clock: C) -> KeyedLimiter<C> {
        Self::with_store(quotas, MemoryStore::with_clock(clock))
    }

    /// Takes a unit, if there is one.
    #[inline]
    pub fn check<K: Hash + ?Sized>(&self, key: &K) -> Result<Permit, Denied> {
        self.check_n(key, 1)
    }

    /// Takes `units` together, if there are as many. No units are always there: 0 succeeds.
    #[inline]
    pub fn check_n<K: Hash + ?Sized>(&self, key: &K, units: u32) -> Result<Permit, Denied> {
        let Inner { bands, store } = &*self.0;
        let key = KeyBytes::of(key);
        match &**bands {
            [band] => conclude_one(&store.take(&key.0, band, units.into())),
            _ => self.decide(&key, units, Mode::Take),
        }
    }

    /// Returns what [`KeyedLimiter::check`] would return, and takes nothing.
    pub fn peek<K: Hash + ?Sized>(&self, key: &K) -> Result<Permit, Denied> {
        self.peek_n(key, 1)
    }

    /// Returns what [`KeyedLimiter::check_n`] would return, and takes nothing.
    pub fn peek_n<K: Hash + ?Sized>(&self, key: &K, units: u32) -> Result<Permit, Denied> {
        self.decide(&KeyBytes::of(key), units, Mode::Peek)
    }

    /// Returns units to a key, up to its full quota. Returns how many are left then.
    pub fn refund<K: Hash + ?Sized>(&self, key: &K, units: u32) -> u32 {
        let Inner { bands, store } = &*self.0;
        let key = KeyBytes::of(key);
        let verdicts = store.refund_now(key.subject(), bands, units.into());
        let left = verdicts.iter().map(|verdict| verdict.remaining);
        left.min().unwrap_or(u32::MAX)
    }

    /// Forgets a key: its quota is full again. Returns whether it was known.
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) -> bool {
        let Inner { bands, store } = &*self.0;
        store.reset_now(KeyBytes::of(key).subject(), bands) > 0
    }

    /// Takes a unit now, or reserves one that returns within `max_wait`. Reservations of a
    /// key are served in their order.
    ///
    /// Only buckets can be reserved. A window or log that has no units left denies.
    pub fn reserve<K: Hash + ?Sized>(
        &self,
        key: &K,
        max_wait: Duration,
    ) -> Result<Reservation<Permit>, Denied> {
        self.reserve_n(key, 1, max_wait)
    }

    /// Takes `units` together now, or reserves as many that return within `max_wait`.
    pub fn reserve_n<K: Hash + ?Sized>(
        &self,
        key: &K,
        units: u32,
        max_wait: Duration,
    ) -> Result<Reservation<Permit>, Denied> {
        let key = KeyBytes::of(key);
        let bands: Box<[Band]> = self
            .0
            .bands
            .iter()
            .map(|band| band.with_limit(band.limit().reserving(max_wait)))
            .collect();
        let verdicts = self.verdicts(&key, &bands, units, Mode::Take);
        let delay = verdicts.iter().map(|verdict| verdict.delay).max();
        let charged: Box<[Charged]> = verdicts.iter().map(Charged::by).collect();
        let permit = conclude(&verdicts)?;
        let delay = delay.unwrap_or_default().as_duration();
        let limiter = self.clone();
        let cancel = move || {
            let store = &limiter.0.store;
            store.cancel_now(key.subject(), &bands, units.into(), &charged);
        };
        let place = WaitPermit::unbounded();
        Ok(Reservation::new(permit, delay, place, cancel))
    }

    /// Waits until a unit is available, and takes it. Callers of one key are served in
    /// their order, if the quotas are buckets. It sleeps by Tokio's clock, even if the store
    /// has another.
    ///
    /// ```
    /// # use fluxgate_core::{KeyedLimiter, Quota};
    /// # async fn send(_: &str) {}
    /// async fn work(limiter: &KeyedLimiter, host: &str) {
    ///     limiter.until_ready(host).await;
    ///     send(host).await;
    /// }
    /// ```
    #[cfg(feature = "tokio")]
    pub async fn until_ready<K: Hash + ?Sized>(&self, key: &K) -> Permit {
        let permit = self.until_n_ready(key, 1).await;
        permit.expect("every quota has a unit")
    }

    /// Waits until `units` are available together, and takes them. Fails if they never are,
    /// because a quota has fewer.
    #[cfg(feature = "tokio")]
    pub async fn until_n_ready<K: Hash + ?Sized>(
        &self,
        key: &K,
        units: u32,
    ) -> Result<Permit, Denied> {
        loop {
            match self.reserve_n(key, units, Duration::MAX) {
                Ok(reservation) => return Ok(reservation.wait().await),
                Err(denied) => denied.sleep().await?,
            }
        }
    }

    /// Returns the number of keys that are known. Keys whose quota is full again are known
    /// until another needs their place.
    pub fn len(&self) -> usize {
        self.0.store.len().div_ceil(self.0.bands.len().max(1))
    }

    /// Returns whether no key is known.
    pub fn is_empty(&self) -> bool {
        self.0.store.is_empty()
    }

    /// Returns the store.
    pub fn store(&self) -> &MemoryStore<C> {
        &self.0.store
    }

    fn decide(&self, key: &KeyBytes, units: u32, mode: Mode) -> Result<Permit, Denied> {
        conclude(&self.verdicts(key, &self.0.bands, units, mode))
    }

    fn verdicts(&self, key: &KeyBytes, bands: &[Band], units: u32, mode: Mode) -> Verdicts {
        let mut checks = Checks::new(mode);
        checks.push(key.subject(), bands, units.into(), Group::ENFORCED);
        self.0.store.decide_now(&checks)
    }
}

/// A call that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permit {
    /// The units left in the quota that has the fewest; `u32::MAX` if the store failed and
    /// they are not known.
    pub remaining: u32,
    /// The time until all quotas are full again; zero if the store failed and it is not known.
    pub reset_after: Duration,
}

/// A call that did not pass. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
#[non_exhaustive]
pub struct Denied {
    /// The time until the call would pass, if no other takes the units; `None` if it never
    /// would, because it is for more units than the quota ever has.
    pub retry_after: Option<Duration>,
    /// The units left in the quota that has the fewest; 0 if the store failed and they are not
    /// known.
    pub remaining: u32,
    failed_closed: bool,
}

impl Permit {
    /// Creates the permit of a call that passes because the store failed.
    pub(crate) fn failed_open() -> Self {
        Self {
            remaining: u32::MAX,
            reset_after: Duration::ZERO,
        }
    }
}

impl Denied {
    /// Returns whether waiting would not help.
    pub fn is_final(&self) -> bool {
        self.retry_after.is_none()
    }

    /// Returns whether the call was denied because the store failed and
    /// [`OnError::Deny`](crate::OnError::Deny) decides. Such a denial says nothing about the
    /// quota.
    pub fn failed_closed(&self) -> bool {
        self.failed_closed
    }

    /// Creates the denial of a call because the store failed.
    pub(crate) fn by_failed_store(retry_after: Option<Duration>) -> Self {
        Self {
            retry_after,
            remaining: 0,
            failed_closed: true,
        }
    }

    /// Waits until the call may pass.
    ///
    /// # Errors
    /// If waiting does not help.
    #[cfg(feature = "tokio")]
    pub(crate) async fn sleep(self) -> Result<(), Self> {
        tokio::time::sleep(self.retry_after.ok_or(self)?).await;
        Ok(())
    }

    fn message(&self) -> String {
        let reason = if self.failed_closed {
            "the store failed, so the call is denied"
        } else {
            "the limit is exceeded"
        };
        match self.retry_after {
            Some(wait) => format!("{reason}; retry after {wait:?}"),
            None => format!("{reason}; it never has that many units"),
        }
    }
}

/// Concludes from the verdict of the only quota.
#[inline(always)]
fn conclude_one(verdict: &Verdict) -> Result<Permit, Denied> {
    if verdict.passes() {
        return Ok(Permit {
            remaining: verdict.remaining,
            reset_after: verdict.reset_after.as_duration(),
        });
    }
    Err(Denied {
        retry_after: verdict.retry_after.after().map(Micros::as_duration),
        remaining: verdict.remaining,
        failed_closed: false,
    })
}

/// Combines the verdicts of all quotas.
pub(crate) fn conclude(verdicts: &[Verdict]) -> Result<Permit, Denied> {
    let combined = verdicts.iter().copied().reduce(|one, other| Verdict {
        remaining: one.remaining.min(other.remaining),
        retry_after: one.retry_after.max(other.retry_after),
        reset_after: one.reset_after.max(other.reset_after),
        ..one
    });
    combined.map_or_else(
        || Ok(Permit::failed_open()),
        |verdict| conclude_one(&verdict),
    )
}

/// Returns a band for each quota, with its position as its id.
pub(crate) fn bands_of(quotas: impl IntoIterator<Item = Quota>) -> impl Iterator<Item = Band> {
    let quotas = quotas.into_iter().enumerate();
    quotas.map(|(index, quota)| Band::new(format!("b{index}"), quota))
}

/// Everything that a key feeds to a hasher. Keys with the same bytes are the same key.
#[derive(Debug)]
struct KeyBytes(SubjectBytes<64>);

impl KeyBytes {
    #[inline]
    fn of<K: Hash + ?Sized>(key: &K) -> Self {
        let mut bytes = Self(SubjectBytes::with_room());
        key.hash(&mut bytes);
        bytes
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            rule: RuleNumber::NONE,
            bytes: &self.0,
        }
    }
}

impl Hasher for KeyBytes {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Not used: the store hashes the bytes.
    fn finish(&self) -> u64 {
        0
    }
}

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

    /// Takes `units` together, if there are as many. No units are always there: 0 succeeds.
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
    fn a_key_of_any_length_is_stored_as_its_bytes() {
        for lengths in [
            vec![],
            vec![3, 61],
            vec![64],
            vec![65],
            vec![63, 2, 1],
            vec![200, 0, 1],
        ] {
            let mut key = KeyBytes::of(&());
            let mut all = Vec::new();
            for length in lengths {
                let piece: Vec<u8> = (all.len()..all.len() + length).map(|it| it as u8).collect();
                key.write(&piece);
                all.extend(piece);
            }
            assert_eq!(*key.0, all);
        }
    }

    #[test]
    fn no_counter_is_evicted_for_another() {
        let limiter = DirectLimiter::new(vec![Quota::per_hour(2); 300]);
        assert!(limiter.check().is_ok());
        assert_eq!(limiter.keyed.store().len(), 300);
    }
}
