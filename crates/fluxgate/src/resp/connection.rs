//! One connection.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::buffers::{self, Input};
use super::session::{Next, Session};
use crate::http::{LINGER, close_gracefully, send};

/// How often we read more once the door has closed.
const MOST_LAST_LOOKS: u32 = 64;
/// How long a client may take to send the rest of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What a connection waits for.
enum Event {
    /// So many bytes came, and there may be more.
    Read(io::Result<(usize, bool)>),
    /// The door has closed.
    Closing,
    /// What should have come did not.
    Late,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    session: Session,
    input: Input,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, session: Session) -> Self {
        Self {
            stream,
            session,
            input: Input::default(),
        }
    }

    /// Reads, answers everything that is whole, sends that at once, and reads
    /// on only when it has been sent.
    pub(super) async fn serve(mut self, closing: &CancellationToken) -> io::Result<()> {
        let mut closed = pin!(closing.cancelled());
        let mut needed = 1;
        let mut deadline: Option<Pin<Box<Sleep>>> = None;
        let mut is_last = false;
        let mut looks = MOST_LAST_LOOKS;
        loop {
            let event = poll_fn(|cx| {
                if let Poll::Ready(read) = self.input.poll_read(&mut self.stream, cx) {
                    return Poll::Ready(Event::Read(read));
                }
                if !is_last && closed.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Event::Closing);
                }
                match &mut deadline {
                    Some(deadline) => deadline.as_mut().poll(cx).map(|()| Event::Late),
                    None => Poll::Pending,
                }
            });
            let may_be_more = match event.await {
                Event::Read(Ok((1.., may_be_more))) => may_be_more,
                Event::Read(Ok((0, _))) | Event::Late => {
                    return close_gracefully(self.stream).await;
                }
                Event::Read(Err(error)) => return Err(error),
                Event::Closing => {
                    // A request may be on its way.
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
                looks = looks.saturating_sub(1);
                if (is_whole && !may_be_more) || looks == 0 {
                    return close_gracefully(self.stream).await;
                }
            } else if is_whole {
                deadline = None;
            } else if deadline.is_none() {
                deadline = Some(Box::pin(tokio::time::sleep(REQUEST_TIMEOUT)));
            }
            if may_be_more {
                // One who always has more to ask must not keep the others waiting.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Answers what there is; tells how many bytes must be there before there
    /// is more to say, or `None` if the connection is to end.
    async fn answer(&mut self) -> io::Result<Option<usize>> {
        let mut out = buffers::take_output();
        let mut read = 0;
        let next = loop {
            let rest = &self.input.bytes()[read..];
            let (more, next) = self.session.answer(rest, &mut out).await;
            read += more;
            match next {
                Next::Send => {
                    send(&mut self.stream, &out).await?;
                    out.clear();
                }
                Next::Read(needed) => break Some(needed),
                Next::End => break None,
            }
        };
        self.input.consume(read);
        if !out.is_empty() {
            after_the_others().await;
            send(&mut self.stream, &out).await?;
        }
        buffers::give_output(out);
        Ok(next)
    }
}

/// Waits until those who are ready now have had their turn. So all read and
/// decide first and then all send, and whoever asks on many connections is woken
/// once for many replies and not for each.
async fn after_the_others() {
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
