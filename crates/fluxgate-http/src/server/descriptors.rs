//! File descriptors: how many there are, and how they are shared.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The soft limit that most systems set.
const USUAL_LIMIT: u64 = 1024;
/// Descriptors for everything but connections of clients and to upstreams: listeners,
/// runtimes, files, connections to Redis. An eighth of all, within these bounds.
const MIN_RESERVED: usize = 32;
const MAX_RESERVED: usize = 256;
/// Each user is guaranteed one of this many equal parts of the rest.
const PARTS: usize = 16;

/// Raises the soft limit on open files to the hard limit; returns the limit.
pub fn raise_descriptor_limit() -> usize {
    let limit = rlimit::increase_nofile_limit(u64::MAX).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot raise the limit on open files");
        let limit = rlimit::Resource::NOFILE.get_soft();
        limit.unwrap_or(USUAL_LIMIT)
    });
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The descriptors that one user (a listener, or the connections to upstreams) may
/// have: some are its own, the others come from a common stock, so no user can take
/// all of them.
#[derive(Clone, Debug)]
pub struct DescriptorShare {
    own: Arc<Semaphore>,
    common: Arc<Semaphore>,
    max: usize,
}

/// A descriptor that may be open until this is dropped.
#[derive(Debug)]
pub struct DescriptorPermit {
    _permit: OwnedSemaphorePermit,
}

impl DescriptorShare {
    /// Shares `limit` descriptors between `N` users.
    pub fn new<const N: usize>(limit: usize) -> [Self; N] {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        let free = limit.saturating_sub((limit / 8).clamp(MIN_RESERVED, MAX_RESERVED));
        let own = (free / PARTS.max(N)).max(1);
        let common = free.saturating_sub(own * N);
        let stock = Arc::new(Semaphore::new(common));
        std::array::from_fn(|_| Self {
            own: Arc::new(Semaphore::new(own)),
            common: Arc::clone(&stock),
            max: own + common,
        })
    }

    /// Returns the most descriptors that it can have.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Takes a descriptor if one is free.
    pub fn try_acquire(&self) -> Option<DescriptorPermit> {
        let permit = Arc::clone(&self.own).try_acquire_owned();
        let permit = permit.or_else(|_| Arc::clone(&self.common).try_acquire_owned());
        permit
            .ok()
            .map(|permit| DescriptorPermit { _permit: permit })
    }

    /// Waits for a descriptor.
    pub async fn acquire(&self) -> DescriptorPermit {
        loop {
            if let Some(permit) = self.try_acquire() {
                return permit;
            }
            let permit = tokio::select! {
                permit = Arc::clone(&self.own).acquire_owned() => permit,
                permit = Arc::clone(&self.common).acquire_owned() => permit,
            };
            // The semaphores are never closed.
            if let Ok(permit) = permit {
                return DescriptorPermit { _permit: permit };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_can_take_what_is_guaranteed_to_another() {
        for limit in [64, 1024, 4096, 20_000, usize::MAX] {
            let [first, second, third] = DescriptorShare::new(limit);
            let most = first.max().min(50_000);
            let taken: Vec<_> = (0..most).map_while(|_| first.try_acquire()).collect();
            assert_eq!(taken.len(), most, "{limit}");
            if limit < 50_000 {
                assert!(first.try_acquire().is_none());
                assert!(taken.len() > limit / 3, "{limit}: {}", taken.len());
            }
            for other in [second, third] {
                let own = (0..most)
                    .map_while(|_| other.try_acquire())
                    .collect::<Vec<_>>();
                assert!(!own.is_empty());
                if limit < 50_000 {
                    assert!(taken.len() + 2 * own.len() < limit, "{limit}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_descriptor_that_is_closed_can_be_opened_again() {
        let [share] = DescriptorShare::new::<1>(64);
        let mut taken: Vec<_> = std::iter::from_fn(|| share.try_acquire()).collect();
        let waiting = share.acquire();
        taken.pop();
        waiting.await;
        let mut waiting = std::pin::pin!(share.acquire());
        let left = std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx)));
        assert!(left.await.is_ready(), "the one before was dropped");
    }
}
