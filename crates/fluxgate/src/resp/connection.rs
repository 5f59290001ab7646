//! One connection.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use fluxgate_http::server::{ClientStream, LINGER, close_gracefully, send};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::buffers::{self, Input};
use super::session::{NextStep, Session};

/// How many more reads a connection makes when the service shuts down.
const MAX_LAST_READS: u32 = 64;
/// How long a client may take to send the rest of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// An event that a connection waits for.
enum ConnectionEvent {
    /// The number of bytes read, and whether there may be more.
    Read(io::Result<(usize, bool)>),
    /// The service shuts down.
    Closing,
    /// The deadline has passed.
    Timeout,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    session: Session,
    input: Input,
}

impl<S: ClientStream> Connection<S> {
    pub(super) fn new(stream: S, session: Session) -> Self {
        Self {
            stream,
            session,
            input: Input::default(),
        }
    }

    /// Serves the connection. Reads, answers all complete requests, and sends the replies
    /// before it reads on.
    pub(super) async fn serve(mut self, closing: &CancellationToken) -> io::Result<()> {
        let mut closed = pin!(closing.cancelled());
        let mut needed = 1;
        let mut deadline: Option<Pin<Box<Sleep>>> = None;
        let mut is_last = false;
        let mut reads_left = MAX_LAST_READS;
        loop {
            let event = poll_fn(|cx| {
                if let Poll::Ready(read) = self.input.poll_read(&mut self.stream, cx) {
                    return Poll::Ready(ConnectionEvent::Read(read));
                }
                if !is_last && closed.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(ConnectionEvent::Closing);
                }
                match &mut deadline {
                    Some(deadline) => deadline
                        .as_mut()
                        .poll(cx)
                        .map(|()| ConnectionEvent::Timeout),
                    None => Poll::Pending,
                }
            });
            let may_be_more = match event.await {
                ConnectionEvent::Read(Ok((1.., may_be_more))) => may_be_more,
                ConnectionEvent::Read(Ok((0, _))) | ConnectionEvent::Timeout => {
                    return close_gracefully(self.stream).await;
                }
                ConnectionEvent::Read(Err(error)) => return Err(error),
                ConnectionEvent::Closing => {
                    // The client may have sent a request already.
                    is_last = true;
                    deadline = Some(Box::pin(tokio::time::sleep(LINGER)));
                    continue;
                }
            };
            if self.input.bytes().len() >= needed {
                match self.answer().await? {
                    Some(more) => needed = more,
                    None => return close_gracefully(self.stream).await,
                }
            }
            let is_whole = self.input.bytes().is_empty();
            if is_last {
                reads_left = reads_left.saturating_sub(1);
                // A read of TLS ends with a record, whether or not more have arrived.
                let is_drained = !may_be_more && !self.stream.is_secure();
                if (is_whole && is_drained) || reads_left == 0 {
                    return close_gracefully(self.stream).await;
                }
            } else if is_whole {
                deadline = None;
            } else if deadline.is_none() {
                deadline = Some(Box::pin(tokio::time::sleep(REQUEST_TIMEOUT)));
            }
            if may_be_more {
                // A client that sends without a pause must not starve others.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Answers the complete requests. Returns how many bytes the next one needs, or `None`
    /// if the connection must close.
    async fn answer(&mut self) -> io::Result<Option<usize>> {
        let mut out = buffers::take_output();
        let mut read = 0;
        let next = loop {
            let rest = &self.input.bytes()[read..];
            let (more, next) = self.session.answer(rest, &mut out).await;
            read += more;
            match next {
                NextStep::Send => {
                    send(&mut self.stream, &out).await?;
                    out.clear();
                }
                NextStep::Read(needed) => break Some(needed),
                NextStep::End => break None,
            }
        };
        self.input.consume(read);
        if !out.is_empty() {
            yield_to_others().await;
            send(&mut self.stream, &out).await?;
        }
        buffers::recycle_output(out);
        Ok(next)
    }
}

/// Yields to the other ready tasks. So all connections read and decide before any of them sends,
/// and a client with many connections wakes once for many replies.
async fn yield_to_others() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
