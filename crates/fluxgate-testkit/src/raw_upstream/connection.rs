//! What a script can do with a connection.

use std::io::{Read as _, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::Shared;
use crate::wire::{Read, WireRequest};

/// A connection, for a script.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    shared: Arc<Shared>,
    index: usize,
    /// What has come and is not used up.
    bytes: Vec<u8>,
    /// It ends with a reset, so nothing may end it in good order any more.
    is_broken: bool,
}

impl RawConnection {
    pub(super) fn new(stream: TcpStream, shared: Arc<Shared>, index: usize) -> Self {
        // Pieces are sent as pieces. If it cannot be set, they merely come later.
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            shared,
            index,
            bytes: Vec::new(),
            is_broken: false,
        }
    }

    /// Its place in the order of connections.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The next whole request; none if the connection ends before. What can be
    /// read in two ways is kept and never answered.
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

    /// Waits until so many bytes that no request has used up have come, or the
    /// end.
    pub fn wait_for_bytes(&mut self, count: usize) {
        while self.bytes.len() < count && self.read_more().is_some() {}
    }

    /// Waits until the other side closes.
    pub fn hold(&mut self) {
        while self.read_more().is_some() {}
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // The other side may have closed; it is the one who is tested.
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends bytes piece by piece, with a pause before each but the first.
    pub fn send_pieces(&mut self, bytes: impl AsRef<[u8]>, size: usize, pause: Duration) {
        for (index, piece) in bytes.as_ref().chunks(size).enumerate() {
            if index > 0 {
                thread::sleep(pause);
            }
            self.send(piece);
        }
    }

    /// Says that the server is busy for so long.
    pub fn pause(&mut self, pause: Duration) {
        thread::sleep(pause);
    }

    /// Has the connection break when the script ends: the other side gets a TCP
    /// reset.
    pub fn break_at_end(&mut self) {
        let socket = socket2::SockRef::from(&self.stream);
        // If it is closed already, it cannot be broken any more.
        let _ = socket.set_linger(Some(Duration::ZERO));
        self.is_broken = true;
        // The reset is sent when the last handle goes.
        self.shared.lock()[self.index].stream = None;
    }

    /// Closes it.
    pub fn end(&mut self) {
        if !self.is_broken {
            // It may be closed already.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    /// The bytes that have come and are not used up, and the connection itself:
    /// what is read from it is not kept.
    pub fn stream(&mut self) -> (Vec<u8>, &mut TcpStream) {
        (std::mem::take(&mut self.bytes), &mut self.stream)
    }

    fn read_more(&mut self) -> Option<()> {
        let mut buffer = vec![0; 64 * 1024];
        let count = self.stream.read(&mut buffer).unwrap_or(0);
        let mut kept = self.shared.lock();
        let kept = &mut kept[self.index];
        if count == 0 {
            kept.is_over = true;
            return None;
        }
        kept.received.extend_from_slice(&buffer[..count]);
        self.bytes.extend_from_slice(&buffer[..count]);
        Some(())
    }
}
