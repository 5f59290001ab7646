//! The client's side of a connection on the fast path.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fluxgate_http::server::{Buffers, ClientStream, LINGER};
use tokio::io::{Interest, ReadBuf};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::timeouts::Deadline;

/// How often to look for the end of a client that has sent more requests.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A client and its timeouts.
pub(super) struct Client<'c, S> {
    pub(super) stream: S,
    deadline: Deadline,
    pub(super) closing: &'c CancellationToken,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// How long the client may send nothing, or accept nothing.
    idle: Duration,
    /// The timeout of the first request.
    first: Option<Duration>,
    /// Whether the next response is the last one: the service shuts down.
    pub(super) is_last: bool,
}

impl<'c, S: ClientStream> Client<'c, S> {
    pub(super) fn new(
        stream: S,
        closing: &'c CancellationToken,
        idle: Duration,
        first: Duration,
    ) -> Self {
        Self {
            stream,
            deadline: Deadline::default(),
            closing,
            closed: Box::pin(closing.clone().cancelled_owned()),
            idle,
            first: Some(first),
            is_last: false,
        }
    }

    /// Reads what the client sends next. `None` if that is nothing.
    pub(super) async fn receive(&mut self) -> Option<(Buffers, usize)> {
        self.deadline
            .set_after(self.first.take().unwrap_or(self.idle));
        let received = poll_fn(|cx| {
            if let Poll::Ready(received) = Buffers::poll_read(&mut self.stream, cx) {
                return Poll::Ready(received.ok().filter(|(_, count)| *count > 0));
            }
            if !self.is_last && self.closed.as_mut().poll(cx).is_ready() {
                // A request may be on its way.
                self.is_last = true;
                self.deadline.set_after(LINGER);
            }
            self.deadline.poll_elapsed(cx).map(|()| None)
        });
        let received = received.await;
        self.is_last |= self.closing.is_cancelled();
        received
    }

    /// Sends all of `bytes`; returns whether the client accepted them.
    pub(super) async fn send(&mut self, mut bytes: &[u8]) -> bool {
        let mut has_deadline = false;
        let sent = poll_fn(|cx| {
            loop {
                let polled = match bytes {
                    [] => Pin::new(&mut self.stream).poll_flush(cx).map_ok(|()| 0),
                    bytes => Pin::new(&mut self.stream).poll_write(cx, bytes),
                };
                match polled {
                    Poll::Ready(Ok(0)) if bytes.is_empty() => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(0)) => {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    Poll::Ready(Ok(count)) => {
                        bytes = &bytes[count..];
                        has_deadline = false;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        // Nearly always everything is sent at once, without a deadline.
                        if !has_deadline {
                            self.deadline.set_after(self.idle);
                            has_deadline = true;
                        }
                        ready!(self.deadline.poll_elapsed(cx));
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                }
            }
        });
        sent.await.is_ok()
    }

    /// Returns the output of `future`, or `None` if the client disconnects first. The caller pins
    /// the future: it may be large, and is not moved then.
    pub(super) async fn unless_gone<F: Future>(
        &self,
        mut future: Pin<&mut F>,
    ) -> Option<F::Output> {
        let mut look_again: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            loop {
                match self.presence(cx) {
                    Presence::Gone => return Poll::Ready(None),
                    Presence::Silent => return Poll::Pending,
                    Presence::Unread => {}
                }
                let timer =
                    look_again.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK_AGAIN)));
                ready!(timer.as_mut().poll(cx));
                look_again = None;
            }
        })
        .await
    }

    /// Returns whether the client is still connected. If it is silent, the task is woken when
    /// that changes.
    fn presence(&self, cx: &mut Context<'_>) -> Presence {
        let tcp = self.stream.tcp();
        if tcp.poll_read_ready(cx).is_pending() {
            return Presence::Silent;
        }
        let mut byte = [0];
        match tcp.poll_peek(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(Ok(0) | Err(_)) => return Presence::Gone,
            Poll::Ready(Ok(_)) => {}
            Poll::Pending => return Presence::Silent,
        }
        // The kernel knows of an end after what the client has sent.
        let readiness = pin!(tcp.ready(Interest::READABLE)).poll(cx);
        match readiness {
            Poll::Ready(Ok(ready)) if ready.is_read_closed() => Presence::Gone,
            _ => Presence::Unread,
        }
    }
}

/// Whether a client is still connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Silent,
    /// It has sent more, which has not been read yet.
    Unread,
    Gone,
}
