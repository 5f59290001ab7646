//! Resets HTTP/2 streams whose client stops reading the response.
//!
//! While a client keeps the window of a stream closed, hyper does not poll the body, so the
//! body cannot notice. The task of the stream can.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::Instant;

use super::deadline::Deadline;

tokio::task_local! {
    /// The progress of the response of the current stream, once there is one.
    static RESPONSE: OnceCell<Arc<Progress>>;
}

/// When a response last made progress.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    /// In milliseconds after the start.
    last: AtomicU64,
}

impl Progress {
    /// Records progress.
    pub(crate) fn record(&self) {
        let millis = self.start.elapsed().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }
}

/// Watches the response of the current stream from now on.
pub(crate) fn watch_response() -> Arc<Progress> {
    let progress = Arc::new(Progress {
        start: Instant::now(),
        last: AtomicU64::new(0),
    });
    // A stream has one response.
    let _ = RESPONSE.try_with(|response| response.set(Arc::clone(&progress)));
    progress
}

/// Runs HTTP/2 streams.
#[derive(Clone, Debug)]
pub(crate) struct StreamExecutor {
    /// How long a response may go without progress.
    pub(crate) idle: Duration,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let watched = until_idle(stream, self.idle);
        tokio::spawn(RESPONSE.scope(OnceCell::new(), watched));
    }
}

/// Runs a stream until it ends, or its response makes no progress. Dropping the stream drops
/// its body and upstream connection, and makes hyper reset it.
async fn until_idle(stream: impl Future<Output = ()>, idle: Duration) {
    let mut stream = pin!(stream);
    let mut deadline = Deadline::default();
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        RESPONSE.with(|response| match response.get() {
            Some(progress) => {
                deadline.set(progress.last() + idle);
                deadline.poll_elapsed(cx)
            }
            None => Poll::Pending,
        })
    })
    .await;
}
