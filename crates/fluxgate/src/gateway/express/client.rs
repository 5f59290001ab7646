//! The client's side of a connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncWrite as _, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::patience::Patience;
use crate::config::Timeouts;
use crate::http::{Buffers, LINGER};

/// How often is looked whether somebody has gone who has said more before.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// A client, and how patient we are with it.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    patience: Patience,
    closing: CancellationToken,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// How long it may say nothing, or leave unread what it is sent.
    idle: Duration,
    /// How long it may take for its first words.
    first: Option<Duration>,
    /// The service ends: what is answered next is the last answer.
    pub(super) is_last: bool,
}

impl Client {
    pub(super) fn new(
        stream: TcpStream,
        closing: &CancellationToken,
        timeouts: &Timeouts,
        first: Duration,
    ) -> Self {
        let Timeouts { idle, headers, .. } = *timeouts;
        let shortest = idle.min(headers).min(timeouts.request).min(first);
        Self {
            stream,
            patience: Patience::new(shortest),
            closing: closing.clone(),
            closed: Box::pin(closing.clone().cancelled_owned()),
            idle,
            first: Some(first),
            is_last: false,
        }
    }

    /// What it says next. `None` if that is nothing.
    pub(super) async fn receive(&mut self) -> Option<(Buffers, usize)> {
        self.patience.allow(self.first.take().unwrap_or(self.idle));
        let received = poll_fn(|cx| {
            if let Poll::Ready(received) = Buffers::poll_read(&mut self.stream, cx) {
                return Poll::Ready(received.ok().filter(|(_, count)| *count > 0));
            }
            if !self.is_last && self.closed.as_mut().poll(cx).is_ready() {
                // A request may be on its way.
                self.is_last = true;
                self.patience.allow(LINGER);
            }
            self.patience.poll_over(cx).map(|()| None)
        });
        let received = received.await;
        self.is_last |= self.closing.is_cancelled();
        received
    }

    /// Sends all of it; says whether the client took it.
    pub(super) async fn send(&mut self, mut bytes: &[u8]) -> bool {
        // Nearly always it can be sent at once, and no time is kept.
        match self.stream.try_write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        while !bytes.is_empty() {
            self.patience.allow(self.idle);
            let sent = poll_fn(|cx| {
                if let Poll::Ready(sent) = Pin::new(&mut self.stream).poll_write(cx, bytes) {
                    return Poll::Ready(sent.ok());
                }
                self.patience.poll_over(cx).map(|()| None)
            });
            match sent.await {
                Some(sent) => bytes = &bytes[sent..],
                None => return false,
            }
        }
        true
    }

    /// What comes of `future`, unless the client goes away first.
    pub(super) async fn unless_gone<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut next_look = pin!(tokio::time::sleep(LOOK_AGAIN));
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            loop {
                match self.presence(cx) {
                    Presence::Gone => return Poll::Ready(None),
                    Presence::Silent => return Poll::Pending,
                    Presence::Unread => ready!(next_look.as_mut().poll(cx)),
                }
                next_look.as_mut().reset(Instant::now() + LOOK_AGAIN);
            }
        })
        .await
    }

    /// What comes of `poll` within so long, unless the client goes away first.
    pub(super) async fn await_for<T>(
        &mut self,
        longest: Duration,
        poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, NotCome> {
        self.allow(longest);
        self.unless_late(poll).await
    }

    /// What is waited for from now on may take so long, all together.
    pub(super) fn allow(&mut self, longest: Duration) {
        self.patience.allow(longest);
    }

    /// What comes of `poll` within what was last allowed, unless the client goes away
    /// first.
    pub(super) async fn unless_late<T>(
        &mut self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, NotCome> {
        poll_fn(|cx| {
            if let Poll::Ready(output) = poll(cx) {
                return Poll::Ready(Ok(output));
            }
            if self.presence(cx) == Presence::Gone {
                return Poll::Ready(Err(NotCome::ClientGone));
            }
            self.patience.poll_over(cx).map(|()| Err(NotCome::Late))
        })
        .await
    }

    /// Whether it is still there. Of one that says nothing more, the task hears.
    fn presence(&self, cx: &mut Context<'_>) -> Presence {
        if self.stream.poll_read_ready(cx).is_pending() {
            return Presence::Silent;
        }
        let mut byte = [0];
        match self.stream.poll_peek(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(Ok(0) | Err(_)) => return Presence::Gone,
            Poll::Ready(Ok(_)) => {}
            Poll::Pending => return Presence::Silent,
        }
        // Behind what it has said the system knows of its end.
        let known = pin!(self.stream.ready(Interest::READABLE)).poll(cx);
        match known {
            Poll::Ready(Ok(ready)) if ready.is_read_closed() => Presence::Gone,
            _ => Presence::Unread,
        }
    }
}

/// Whether a client is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Silent,
    /// It has said more since, which nobody reads yet.
    Unread,
    Gone,
}

/// Why something that was waited for has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotCome {
    ClientGone,
    Late,
}
