//! How a connection is written to and closed.

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// How long a connection without a request stays open once the service shuts down.
pub const LINGER: Duration = Duration::from_millis(500);

/// How long a client may leave unread what is sent to it.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// How long, and how much, is read from a client after the last response.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_DRAIN: u64 = 1024 * 1024;

/// Returns the output of `future`, or `None` if it is not ready [`LINGER`] after
/// `closing` was cancelled: a request may be on its way, and its response tells the
/// client that the connection ends.
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
pub async fn send(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let sent = match stream.try_write(bytes) {
        Ok(sent) => sent,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    if sent == bytes.len() {
        return Ok(());
    }
    let rest = stream.write_all(&bytes[sent..]);
    tokio::time::timeout(SEND_TIMEOUT, rest)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Closes a connection so that the client can read the last response: the kernel
/// discards data in flight if a socket is closed with unread input.
pub async fn close_gracefully<S>(mut stream: S) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.shutdown().await?;
    let mut rest = stream.take(MAX_DRAIN);
    let mut sink = tokio::io::sink();
    let drained = tokio::io::copy(&mut rest, &mut sink);
    // A client that keeps sending is cut off.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
    Ok(())
}
