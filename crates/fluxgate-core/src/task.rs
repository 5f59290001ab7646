//! Work that no caller waits for.

use std::task::{Context, Poll, Waker};

/// Polls `work` once and spawns it if it is pending. Does nothing outside a Tokio runtime.
#[cfg(feature = "tokio")]
pub fn poll_once_or_spawn(work: impl Future<Output = ()> + Send + 'static) {
    // Timers and sockets panic outside a runtime, which may have ended.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    let mut work = Box::pin(work);
    if poll_once(&mut work) {
        return;
    }
    runtime.spawn(work);
}

/// Runs `work` of a store. One that answers at once needs no runtime.
pub(crate) fn run(work: impl Future<Output = ()> + Send + 'static, answers_at_once: bool) {
    if answers_at_once {
        poll_once(&mut Box::pin(work));
    } else {
        #[cfg(feature = "tokio")]
        poll_once_or_spawn(work);
    }
}

/// Returns the output of a future that is ready at its first poll, as those of the memory
/// store are.
///
/// # Panics
/// If it is not ready.
pub fn ready<F: Future>(future: F) -> F::Output {
    let mut now = Context::from_waker(Waker::noop());
    match std::pin::pin!(future).poll(&mut now) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is not ready"),
    }
}

/// Returns whether the work is done.
fn poll_once(work: &mut (impl Future<Output = ()> + Unpin)) -> bool {
    let mut now = Context::from_waker(Waker::noop());
    std::pin::Pin::new(work).poll(&mut now).is_ready()
}
