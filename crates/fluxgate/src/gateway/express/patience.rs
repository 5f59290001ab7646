//! How long is waited, without moving a timer at every request.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// A time at which waiting ends. It may be moved at no cost: the timer goes off
/// now and then, and looks.
#[derive(Debug)]
pub(super) struct Patience {
    until: Instant,
    /// No longer than anything that is waited for, so that it is never late.
    interval: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    /// For waits that last `shortest` at least.
    pub(super) fn new(shortest: Duration) -> Self {
        let until = Instant::now() + shortest;
        Self {
            until,
            interval: shortest,
            timer: Box::pin(tokio::time::sleep_until(until)),
        }
    }

    /// What is waited for now may take so long.
    pub(super) fn allow(&mut self, span: Duration) {
        self.until = Instant::now() + span;
        if span < self.interval {
            self.timer.as_mut().reset(self.until);
        }
    }

    /// Ready when it has taken too long.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if now >= self.until {
                return Poll::Ready(());
            }
            let next = self.until.min(now + self.interval);
            self.timer.as_mut().reset(next);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_it_was_last_said_to() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let mut patience = Patience::new(seconds(10));
        for (moved_at, span) in [(0, 30), (7, 12), (18, 10), (25, 3)] {
            let moved_at = start + seconds(moved_at);
            let moved = tokio::time::timeout_at(moved_at, poll_fn(|cx| patience.poll_over(cx)));
            assert!(moved.await.is_err(), "it was not over yet");
            patience.allow(seconds(span));
        }
        poll_fn(|cx| patience.poll_over(cx)).await;
        assert_eq!(start.elapsed(), seconds(28));
        // It can be used again.
        patience.allow(seconds(40));
        poll_fn(|cx| patience.poll_over(cx)).await;
        assert_eq!(start.elapsed(), seconds(68));
    }
}
