//! Deadlines that can be moved at every request without touching the timer.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A point in time at which waiting ends.
///
/// Moving it to a later time costs nothing: the timer stays where it is, fires early and is
/// then set to the deadline.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    until: Option<Instant>,
    /// Created when it is first waited for. It fires at the deadline or before.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Sets the deadline.
    pub(crate) fn set(&mut self, until: Instant) {
        self.until = Some(until);
        if let Some(timer) = &mut self.timer
            && until < timer.deadline()
        {
            timer.as_mut().reset(until);
        }
    }

    /// Sets the deadline to `span` from now.
    pub(crate) fn set_after(&mut self, span: Duration) {
        self.set(Instant::now() + span);
    }

    /// Removes the deadline.
    pub(crate) fn clear(&mut self) {
        self.until = None;
    }

    /// Ready once the deadline has passed.
    pub(crate) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.until else {
            return Poll::Pending;
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
        Poll::Pending
    }

    /// Like [`Deadline::poll_elapsed`]. If there is no deadline, sets it to `span` from now.
    pub(crate) fn poll_after(&mut self, cx: &mut Context<'_>, span: Duration) -> Poll<()> {
        if self.until.is_none() {
            self.set_after(span);
        }
        self.poll_elapsed(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_at_the_time_that_was_set_last() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let mut deadline = Deadline::default();
        for (moved_at, span) in [(0, 30), (7, 12), (18, 10), (25, 3)] {
            let moved_at = start + seconds(moved_at);
            let moved = tokio::time::timeout_at(moved_at, poll_fn(|cx| deadline.poll_elapsed(cx)));
            assert!(moved.await.is_err(), "it has not passed yet");
            deadline.set_after(seconds(span));
        }
        poll_fn(|cx| deadline.poll_elapsed(cx)).await;
        assert_eq!(start.elapsed(), seconds(28));
        // It can be used again.
        deadline.set_after(seconds(40));
        poll_fn(|cx| deadline.poll_elapsed(cx)).await;
        assert_eq!(start.elapsed(), seconds(68));
        // Shorter than what the timer is set to.
        deadline.clear();
        deadline.set_after(seconds(50));
        let early = tokio::time::timeout(seconds(1), poll_fn(|cx| deadline.poll_elapsed(cx)));
        assert!(early.await.is_err());
        deadline.clear();
        poll_fn(|cx| deadline.poll_after(cx, seconds(2))).await;
        assert_eq!(start.elapsed(), seconds(71));
    }
}
