//! A server that records the bytes it receives and responds by a script.

use std::io::{Read as _, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::wire::{Read, WireRequest};

/// A server on loopback, which stops when dropped.
#[derive(Debug)]
pub struct RawUpstream {
    address: SocketAddr,
    records: Arc<ConnectionRecords>,
    accepting: Option<JoinHandle<()>>,
}

/// The bytes received on one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether the connection has ended.
    pub is_over: bool,
}

impl RawUpstream {
    /// Starts a server that runs a script for each connection in a thread. The connection
    /// ends with the script.
    pub fn start(script: impl Fn(&mut RawConnection) + Send + Sync + 'static) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), script)
    }

    /// Starts a server at a given address.
    ///
    /// # Panics
    /// If the address is in use.
    pub fn start_at(
        address: SocketAddr,
        script: impl Fn(&mut RawConnection) + Send + Sync + 'static,
    ) -> Self {
        let listener = listen(address).expect("listen on loopback");
        let address = listener.local_addr().expect("a listener has an address");
        let records = Arc::<ConnectionRecords>::default();
        let accepting = {
            let records = Arc::clone(&records);
            thread::spawn(move || accept(&listener, &records, &Arc::new(script)))
        };
        Self {
            address,
            records,
            accepting: Some(accepting),
        }
    }

    /// Starts a server that responds to every request with these bytes.
    pub fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |connection| {
            while connection.read_request().is_some() {
                connection.send(&answer);
            }
        })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the bytes received so far, by connection.
    pub fn received(&self) -> Vec<Received> {
        let received = |record: &ConnectionRecord| Received {
            bytes: record.received.clone(),
            is_over: record.is_over,
        };
        self.records.lock().iter().map(received).collect()
    }

    /// Returns the complete requests received so far, ordered by connection.
    ///
    /// # Panics
    /// If the bytes are ambiguous.
    #[track_caller]
    pub fn requests(&self) -> Vec<WireRequest> {
        let received = self.received();
        let requests =
            received
                .iter()
                .flat_map(|received| match WireRequest::read_all(&received.bytes) {
                    Ok((requests, _)) => requests,
                    Err(bad) => panic!("{bad}: {:?}", received.bytes.escape_ascii().to_string()),
                });
        requests.collect()
    }

    /// Returns the number of connections so far.
    pub fn accepted(&self) -> usize {
        self.records.lock().len()
    }

    /// Closes the sending direction of all connections, and waits until the peer closes
    /// them.
    #[track_caller]
    pub fn finish_connections(&self) {
        self.shut_down(Shutdown::Write);
        crate::wait_until("the peer closes idle connections", || {
            self.records.lock().iter().all(|record| record.is_over)
        });
    }

    /// Closes all connections gracefully.
    pub fn close_connections(&self) {
        self.shut_down(Shutdown::Both);
    }

    fn shut_down(&self, how: Shutdown) {
        for stream in self
            .records
            .lock()
            .iter()
            .filter_map(|record| record.stream.as_ref())
        {
            // The stream may be closed already.
            let _ = stream.shutdown(how);
        }
    }
}

impl Drop for RawUpstream {
    fn drop(&mut self) {
        self.records.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread. If that fails, it has ended.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.close_connections();
    }
}

/// Opens a listener with a large backlog: if it is full, clients retry only after a second.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

fn accept<F>(listener: &TcpListener, records: &Arc<ConnectionRecords>, script: &Arc<F>)
where
    F: Fn(&mut RawConnection) + Send + Sync + 'static,
{
    for stream in listener.incoming() {
        if records.stopped.load(Ordering::SeqCst) {
            return;
        }
        // The client may have disconnected already.
        let Ok(stream) = stream else { continue };
        let Ok(clone) = stream.try_clone() else {
            continue;
        };
        let index = records.add(clone);
        let (records, script) = (Arc::clone(records), Arc::clone(script));
        thread::spawn(move || {
            let mut connection = RawConnection::new(stream, Arc::clone(&records), index);
            script(&mut connection);
            connection.end();
            records.lock()[index].is_over = true;
        });
    }
}

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
    fn new(stream: TcpStream, records: Arc<ConnectionRecords>, index: usize) -> Self {
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

/// The records that the server shares with its connections.
#[derive(Debug, Default)]
struct ConnectionRecords {
    stopped: AtomicBool,
    records: Mutex<Vec<ConnectionRecord>>,
}

/// The record of a connection.
#[derive(Debug)]
struct ConnectionRecord {
    received: Vec<u8>,
    /// Whether the peer has closed it, or the script has ended.
    is_over: bool,
    /// `None` if the connection is to be reset.
    stream: Option<TcpStream>,
}

impl ConnectionRecords {
    /// Adds the record of a new connection and returns its index.
    fn add(&self, stream: TcpStream) -> usize {
        let mut records = self.lock();
        records.push(ConnectionRecord {
            received: Vec::new(),
            is_over: false,
            stream: Some(stream),
        });
        records.len() - 1
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ConnectionRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
