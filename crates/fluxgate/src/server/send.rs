//! Sending to clients that may not read.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// How long a client may leave unread what is sent to it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends all of it. Nearly always it can be sent at once, and no time is kept.
pub(crate) async fn send(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let sent = match stream.try_write(bytes) {
        Ok(sent) => sent,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    if sent == bytes.len() {
        return Ok(());
    }
    let rest = stream.write_all(&bytes[sent..]);
    tokio::time::timeout(TIMEOUT, rest)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
