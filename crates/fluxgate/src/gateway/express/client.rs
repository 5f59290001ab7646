//! The client's side of a connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::patience::Patience;
use crate::config::Timeouts;
use crate::server::{Buffers, LINGER};

/// A client, and how patient we are with it.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    patience: Patience,
    closing: CancellationToken,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// How long it may say nothing, or leave unread what it is sent.
    idle: Duration,
    /// How long it may take for its first words: whoever connects has something
    /// to say.
    first: Option<Duration>,
    /// The service ends: what is answered next is the last answer.
    pub(super) is_last: bool,
}

impl Client {
    pub(super) fn new(stream: TcpStream, closing: &CancellationToken, timeouts: &Timeouts) -> Self {
        let Timeouts { idle, headers, .. } = *timeouts;
        let shortest = idle.min(headers).min(timeouts.request);
        Self {
            stream,
            patience: Patience::new(shortest),
            closing: closing.clone(),
            closed: Box::pin(closing.clone().cancelled_owned()),
            idle,
            first: Some(headers),
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
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            match self.has_gone(cx) {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// What comes of `poll` within so long, unless the client goes away first.
    pub(super) async fn await_for<T>(
        &mut self,
        longest: Duration,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, NotCome> {
        self.patience.allow(longest);
        poll_fn(|cx| {
            if let Poll::Ready(output) = poll(cx) {
                return Poll::Ready(Ok(output));
            }
            if self.has_gone(cx) {
                return Poll::Ready(Err(NotCome::ClientGone));
            }
            self.patience.poll_over(cx).map(|()| Err(NotCome::Late))
        })
        .await
    }

    /// Whether it has hung up. One that has said more since is taken to be there.
    fn has_gone(&self, cx: &mut Context<'_>) -> bool {
        if self.stream.poll_read_ready(cx).is_pending() {
            return false;
        }
        let mut byte = [0];
        let peeked = self.stream.poll_peek(cx, &mut ReadBuf::new(&mut byte));
        matches!(peeked, Poll::Ready(Ok(0) | Err(_)))
    }
}

/// Why something that was waited for has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotCome {
    ClientGone,
    Late,
}
