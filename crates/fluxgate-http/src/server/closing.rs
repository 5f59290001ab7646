//! How a connection is written to and closed.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

/// How long a connection without a request stays open once the service shuts down.
pub const LINGER: Duration = Duration::from_millis(500);

/// How long a client may leave sent data unread.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// How long input is read and discarded after the last response.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_DRAIN: u64 = 1024 * 1024;

/// Returns the output of `future`, or `None` if it is not ready [`LINGER`] after
/// `closing` was cancelled. The delay is for a request that is already on its way: its response
/// tells the client that the connection ends.
pub async fn until_closing<F: Future>(future: F, closing: &CancellationToken) -> Option<F::Output> {
    let mut future = pin!(future);
    tokio::select! {
        biased;
        output = future.as_mut() => Some(output),
        () = closing.cancelled() => tokio::time::timeout(LINGER, future).await.ok(),
    }
}

/// Sends all of `bytes`. A timer is only set if the socket's buffer is full, which is
/// rare.
pub async fn send<S>(stream: &mut S, bytes: &[u8]) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    let mut left = bytes;
    let at_once = poll_fn(|cx| Poll::Ready(poll_send(stream, cx, &mut left))).await;
    if let Poll::Ready(sent) = at_once {
        return sent;
    }
    let rest = poll_fn(|cx| poll_send(stream, cx, &mut left));
    tokio::time::timeout(SEND_TIMEOUT, rest)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Writes the rest, and flushes it: TLS has a buffer of its own.
fn poll_send<S>(stream: &mut S, cx: &mut Context<'_>, left: &mut &[u8]) -> Poll<io::Result<()>>
where
    S: AsyncWrite + Unpin,
{
    while !left.is_empty() {
        match ready!(Pin::new(&mut *stream).poll_write(cx, left))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            count => *left = &left[count..],
        }
    }
    Pin::new(stream).poll_flush(cx)
}

/// Closes a connection so that the client can read the last response: the kernel
/// discards data in flight if a socket is closed with unread input.
pub async fn close_gracefully<S>(mut stream: S) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let closed = async {
        // With TLS this sends a close notification, and waits if the client does not read. The
        // timeout covers that.
        stream.shutdown().await?;
        let mut rest = stream.take(MAX_DRAIN);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    match tokio::time::timeout(DRAIN_TIMEOUT, closed).await {
        Ok(closed) => closed.map(drop),
        // A client that keeps sending is cut off.
        Err(_) => Ok(()),
    }
}
