//! The deadlines of many requests, with one timer.
//!
//! Tokio wakes its driver with a system call whenever a timer is set that is due before all
//! others. The deadline of a decision nearly always is, and is nearly never reached. Here the
//! timer is set for the first deadline only, and again when that has passed.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use tokio::time::{Instant, sleep_until};

use crate::lock::lock;

/// Deadlines on one runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines(Arc<Mutex<Pending>>);

/// A deadline has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elapsed;

#[derive(Debug, Default)]
struct Pending {
    wakers: BTreeMap<Key, Waker>,
    /// When the timer is due; `None` if no task waits for it.
    due: Option<Instant>,
    next_number: u64,
}

/// Numbered, because deadlines need not differ.
type Key = (Instant, u64);

impl Deadlines {
    /// Waits for a future until the deadline.
    pub(crate) async fn timeout_at<F: Future>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        let mut entry: Option<DeadlineEntry<'_>> = None;
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            let entry = entry.get_or_insert_with(|| self.insert(deadline, cx.waker()));
            if entry.is_pending(cx.waker()) {
                Poll::Pending
            } else {
                Poll::Ready(Err(Elapsed))
            }
        })
        .await
    }

    fn insert(&self, deadline: Instant, waker: &Waker) -> DeadlineEntry<'_> {
        let mut pending = lock(&self.0);
        let key = (deadline, pending.next_number);
        pending.next_number += 1;
        pending.wakers.insert(key, waker.clone());
        if pending.due.is_none_or(|due| deadline < due) {
            pending.due = Some(deadline);
            tokio::spawn(self.clone().wake_from(deadline));
        }
        DeadlineEntry {
            deadlines: self,
            key,
        }
    }

    /// Wakes what is due at `due` and later, until nothing is pending or another task does so
    /// from an earlier deadline on.
    async fn wake_from(self, mut due: Instant) {
        loop {
            sleep_until(due).await;
            let mut woken = Vec::new();
            let mut pending = lock(&self.0);
            if pending.due != Some(due) {
                return;
            }
            let now = Instant::now();
            while let Some(first) = pending.wakers.first_entry()
                && first.key().0 <= now
            {
                woken.push(first.remove());
            }
            pending.due = pending.wakers.keys().next().map(|(deadline, _)| *deadline);
            let next = pending.due;
            drop(pending);
            woken.into_iter().for_each(Waker::wake);
            match next {
                Some(next) => due = next,
                None => return,
            }
        }
    }
}

/// A deadline that has not been found to have passed.
struct DeadlineEntry<'d> {
    deadlines: &'d Deadlines,
    key: Key,
}

impl DeadlineEntry<'_> {
    /// Returns whether the deadline has not passed. If so, it will wake this waker.
    fn is_pending(&self, waker: &Waker) -> bool {
        let mut pending = lock(&self.deadlines.0);
        let known = pending.wakers.get_mut(&self.key);
        let is_pending = known.is_some();
        if let Some(known) = known {
            known.clone_from(waker);
        }
        is_pending
    }
}

impl Drop for DeadlineEntry<'_> {
    fn drop(&mut self) {
        lock(&self.deadlines.0).wakers.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use super::*;

    fn after(millis: u64) -> Instant {
        Instant::now() + Duration::from_millis(millis)
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_that_is_ready_wins_over_its_deadline() {
        let deadlines = Deadlines::default();
        let output = deadlines.timeout_at(after(0), ready(7)).await;
        assert_eq!(output.ok(), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn every_deadline_is_kept_in_whatever_order_they_are_set() {
        let deadlines = Deadlines::default();
        let start = Instant::now();
        let mut waits = tokio::task::JoinSet::new();
        for millis in [50, 20, 20, 90, 10, 70, 50] {
            let deadlines = deadlines.clone();
            waits.spawn(async move {
                let over = deadlines.timeout_at(after(millis), pending::<()>()).await;
                assert!(over.is_err());
                (millis, start.elapsed().as_millis())
            });
            tokio::task::yield_now().await;
        }
        for (wanted, waited) in waits.join_all().await {
            // Timers have a resolution of a millisecond.
            let wanted = u128::from(wanted);
            assert!(
                (wanted..=wanted + 1).contains(&waited),
                "{wanted}: {waited}"
            );
        }
        assert!(lock(&deadlines.0).wakers.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_what_ends_in_time() {
        let deadlines = Deadlines::default();
        for _ in 0..3 {
            let sleep = tokio::time::sleep(Duration::from_millis(10));
            assert!(deadlines.timeout_at(after(50), sleep).await.is_ok());
            assert!(lock(&deadlines.0).wakers.is_empty());
        }
        // The timer is set again after it was due and found nothing.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(lock(&deadlines.0).due, None);
        let over = deadlines.timeout_at(after(50), pending::<()>()).await;
        assert!(over.is_err());
    }
}
