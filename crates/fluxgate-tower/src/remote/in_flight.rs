//! A check that is in flight, and what becomes of an answer that comes too late.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fluxgate_core::task::poll_once_or_spawn;
use http::Response;
use tokio::time::timeout;

use super::RemoteHandler;
use super::pool::CallError;
use super::response::CheckResponse;

const RELEASE: &str = "/v1/release";

/// How long to wait for an answer that no request waits for.
const LATE_ANSWER: Duration = Duration::from_secs(5);

type Answer = Result<Response<Bytes>, CallError>;

/// A call that decides a request.
///
/// If it is dropped before the answer has arrived, because the client is gone or the deadline has
/// passed, the service may still have reserved units or taken slots. A task then waits for the
/// answer and cancels the reservation or releases the hold. Otherwise its units would be missing
/// until it expires.
pub(super) struct InFlight<'a> {
    handler: &'a RemoteHandler,
    /// `None` once it has ended.
    call: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    /// Whether the request may have left this process.
    is_sent: Arc<AtomicBool>,
}

impl<'a> InFlight<'a> {
    /// Prepares a call. It is sent when it is first polled.
    pub(super) fn new(handler: &'a RemoteHandler, path: &'static str, body: Bytes) -> Self {
        let is_sent = Arc::<AtomicBool>::default();
        let (pool, sent) = (Arc::clone(&handler.pool), Arc::clone(&is_sent));
        Self {
            handler,
            call: Some(Box::pin(async move { pool.call(path, body, &sent).await })),
            is_sent,
        }
    }
}

impl Future for InFlight<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let Some(call) = &mut self.call else {
            return Poll::Pending;
        };
        let answer = call.as_mut().poll(cx);
        if answer.is_ready() {
            self.call = None;
        }
        answer
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else {
            return;
        };
        if !self.is_sent.load(Ordering::Relaxed) {
            return;
        }
        let Ok(permit) = Arc::clone(&self.handler.late_answers).try_acquire_owned() else {
            return;
        };
        let handler = self.handler.clone();
        poll_once_or_spawn(async move {
            let answer = timeout(LATE_ANSWER, call).await;
            drop(permit);
            if let Ok(Ok(answer)) = answer
                && let Ok(response) = CheckResponse::parse(&answer)
            {
                handler.abandon(&response).await;
            }
        });
    }
}

impl RemoteHandler {
    /// Cancels the reservation, or releases the hold, of a request that does not proceed.
    async fn abandon(&self, response: &CheckResponse) {
        match (response.reservation, response.hold) {
            (Some(reservation), _) => self.cancel_reservation(reservation).await,
            (None, Some((hold, _))) => {
                let body = format!("{{\"hold\":\"{hold}\"}}");
                let deadline = self.settings.deadline;
                let released = self.pool.post(RELEASE, body.into(), deadline).await;
                if let Err(error) = released {
                    tracing::warn!(%error, "cannot release the hold of an abandoned request");
                }
            }
            (None, None) => {}
        }
    }
}
