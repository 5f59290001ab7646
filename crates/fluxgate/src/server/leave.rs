//! How a connection is ended so that the client reads the last answer.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long, and how much, is read from a client after the last answer.
const LAST_READ: Duration = Duration::from_secs(1);
const MOST_LAST_READ: u64 = 1024 * 1024;

/// Ends a connection, and lets the client read what it was sent: a socket that is
/// closed with something left to read takes back what was sent.
pub(crate) async fn leave(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut rest = stream.take(MOST_LAST_READ);
    let mut sink = tokio::io::sink();
    let read = tokio::io::copy(&mut rest, &mut sink);
    // If the client goes on regardless, it is cut off.
    let _ = tokio::time::timeout(LAST_READ, read).await;
    Ok(())
}
