//! A connection, as scripts use it.

use std::io::{Read as _, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::records::ConnectionRecords;
use crate::wire::{Read, WireRequest};

/// A connection of a [`RawUpstream`](super::RawUpstream).
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    records: Arc<ConnectionRecords>,
    index: usize,
    /// Received bytes that are not parsed yet.
    bytes: Vec<u8>,
    /// Whether the connection ends with a reset, so that it must not be closed gracefully.
    is_reset: bool,
}

impl RawConnection {
    pub(super) fn new(stream: TcpStream, records: Arc<ConnectionRecords>, index: usize) -> Self {
        // Failure only delays small writes.
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            records,
            index,
            bytes: Vec::new(),
            is_reset: false,
        }
    }

    /// Returns the index of this connection.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Reads the next request. Returns `None` if the connection ends before, or if the request
    /// is ambiguous, after the peer has closed.
    pub fn read_request(&mut self) -> Option<WireRequest> {
        loop {
            match WireRequest::read(&self.bytes) {
                Ok(Read::Whole(request, used)) => {
                    self.bytes.drain(..used);
                    return Some(request);
                }
                Ok(Read::Part) => {
                    self.read_more()?;
                }
                Err(_) => {
                    self.hold();
                    return None;
                }
            }
        }
    }

    /// Waits until this many bytes are received that are not parsed, or until the end.
    pub fn wait_for_bytes(&mut self, count: usize) {
        while self.bytes.len() < count && self.read_more().is_some() {}
    }

    /// Waits until the received bytes that are not parsed end with these, or until the end.
    pub fn wait_for_end_with(&mut self, bytes: impl AsRef<[u8]>) {
        while !self.bytes.ends_with(bytes.as_ref()) && self.read_more().is_some() {}
    }

    /// Waits until the peer closes the connection.
    pub fn hold(&mut self) {
        while self.read_more().is_some() {}
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The peer, which is under test, may have closed the connection.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends bytes in pieces with pauses in between.
    pub fn send_pieces(&mut self, bytes: impl AsRef<[u8]>, size: usize, pause: Duration) {
        for (index, piece) in bytes.as_ref().chunks(size).enumerate() {
            if index > 0 {
                thread::sleep(pause);
            }
            self.send(piece);
        }
    }

    /// Sleeps, like a busy server.
    pub fn pause(&mut self, pause: Duration) {
        thread::sleep(pause);
    }

    /// Resets the connection when the script ends.
    pub fn break_at_end(&mut self) {
        let socket = socket2::SockRef::from(&self.stream);
        // Fails if the socket is closed already.
        let _ = socket.set_linger(Some(Duration::ZERO));
        self.is_reset = true;
        // The reset is sent when the last handle is dropped.
        self.records.lock()[self.index].stream = None;
    }

    /// Closes the connection.
    pub fn end(&mut self) {
        if !self.is_reset {
            // The stream may be closed already.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    /// Returns the bytes that are not parsed yet, and the stream. Bytes read from the stream
    /// are not recorded.
    pub fn stream(&mut self) -> (Vec<u8>, &mut TcpStream) {
        (std::mem::take(&mut self.bytes), &mut self.stream)
    }

    fn read_more(&mut self) -> Option<()> {
        let mut buffer = vec![0; 64 * 1024];
        let count = self.stream.read(&mut buffer).unwrap_or(0);
        let mut records = self.records.lock();
        let record = &mut records[self.index];
        if count == 0 {
            record.is_over = true;
            return None;
        }
        record.received.extend_from_slice(&buffer[..count]);
        self.bytes.extend_from_slice(&buffer[..count]);
        Some(())
    }
}
