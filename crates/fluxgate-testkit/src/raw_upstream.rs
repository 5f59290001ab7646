//! A server that keeps the bytes it gets and answers by a script.

mod connection;

use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use socket2::{Domain, Socket, Type};

use crate::wire::WireRequest;
pub use connection::RawConnection;

/// A server on loopback; it is gone, with all its connections, when dropped.
#[derive(Debug)]
pub struct RawUpstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    connections: Mutex<Vec<Kept>>,
}

/// What is known of a connection.
#[derive(Debug)]
struct Kept {
    received: Vec<u8>,
    /// Whether the other side has closed it, or the script has ended.
    is_over: bool,
    /// None if it is to be broken.
    stream: Option<TcpStream>,
}

/// What has come on one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether no more can come.
    pub is_over: bool,
}

impl RawUpstream {
    /// A server that runs a script for each connection, in a thread of its own.
    /// The connection ends with the script.
    pub fn start(script: impl Fn(&mut RawConnection) + Send + Sync + 'static) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), script)
    }

    /// The same at an address that is free.
    ///
    /// # Panics
    /// If it is not.
    pub fn start_at(
        address: SocketAddr,
        script: impl Fn(&mut RawConnection) + Send + Sync + 'static,
    ) -> Self {
        let listener = listen(address).expect("listen on loopback");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared::default());
        let accepting = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.accept(&listener, &Arc::new(script)))
        };
        Self {
            address,
            shared,
            accepting: Some(accepting),
        }
    }

    /// A server that answers every whole request with these bytes.
    pub fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |connection| {
            while connection.read_request().is_some() {
                connection.send(&answer);
            }
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has come so far, connection by connection.
    pub fn received(&self) -> Vec<Received> {
        let received = |kept: &Kept| Received {
            bytes: kept.received.clone(),
            is_over: kept.is_over,
        };
        self.shared.lock().iter().map(received).collect()
    }

    /// The whole requests that have come so far, connection by connection.
    ///
    /// # Panics
    /// If what has come can be read in two ways.
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

    /// How many connections have been made.
    pub fn accepted(&self) -> usize {
        self.shared.lock().len()
    }

    /// Says on all connections that nothing more will come, and waits until the
    /// other side has closed them for it.
    #[track_caller]
    pub fn finish_connections(&self) {
        self.shut_down(Shutdown::Write);
        crate::wait_until("idle connections are closed from the other side", || {
            self.shared.lock().iter().all(|kept| kept.is_over)
        });
    }

    /// Closes all connections in good order.
    pub fn close_connections(&self) {
        self.shut_down(Shutdown::Both);
    }

    fn shut_down(&self, how: Shutdown) {
        for stream in self
            .shared
            .lock()
            .iter()
            .filter_map(|kept| kept.stream.as_ref())
        {
            // It may be closed already.
            let _ = stream.shutdown(how);
        }
    }
}

impl Drop for RawUpstream {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts. If it cannot be reached, it has ended.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.close_connections();
    }
}

/// With room for as many as come at once: those who find none try again only
/// after a second.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

impl Shared {
    fn accept<F>(self: &Arc<Self>, listener: &TcpListener, script: &Arc<F>)
    where
        F: Fn(&mut RawConnection) + Send + Sync + 'static,
    {
        for stream in listener.incoming() {
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            // The client may have gone before it was accepted.
            let Ok(stream) = stream else { continue };
            let Ok(ours) = stream.try_clone() else {
                continue;
            };
            let index = {
                let mut connections = self.lock();
                connections.push(Kept {
                    received: Vec::new(),
                    is_over: false,
                    stream: Some(ours),
                });
                connections.len() - 1
            };
            let (shared, script) = (Arc::clone(self), Arc::clone(script));
            thread::spawn(move || {
                let mut connection = RawConnection::new(stream, Arc::clone(&shared), index);
                script(&mut connection);
                connection.end();
                shared.lock()[index].is_over = true;
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }
}
