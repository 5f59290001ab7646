//! A server that records the bytes it receives and responds by a script.

mod connection;
mod records;

use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use socket2::{Domain, Socket, Type};

use crate::wire::WireRequest;
pub use connection::RawConnection;
use records::{ConnectionRecord, ConnectionRecords};

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
