//! A TCP proxy that injects faults.

mod connection;
mod fault;
mod frame;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use connection::Connection;
pub use fault::{Mode, ReplyFault};
use fault::{PendingFault, PendingFaults};

/// A proxy between a client and a server. A change of its mode applies at once, to existing
/// and to new connections.
///
/// The proxy parses RESP2 and RESP3, so that "the next reply" is one reply even if several
/// arrive together. Pushes of RESP3 are not replies. In other protocols, each read counts as
/// a reply.
///
/// When one side closes, the proxy closes the other; there are no half-closed connections.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// The state that the proxy shares with its threads.
#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    mode: Mutex<Mode>,
    faults: Mutex<PendingFaults>,
    /// Each lives as long as one of its threads.
    connections: Mutex<Vec<Weak<Connection>>>,
    stopped: AtomicBool,
    accepted: AtomicU64,
    open: AtomicUsize,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
}

impl FaultProxy {
    /// Starts a proxy on a free port. The upstream need not be running yet.
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen on loopback");
        let addr = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            upstream,
            mode: Mutex::new(Mode::Pass),
            faults: Mutex::default(),
            connections: Mutex::default(),
            stopped: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            bytes_up: AtomicU64::new(0),
            bytes_down: AtomicU64::new(0),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.accept(&listener))
        };
        Self {
            addr,
            shared,
            accepting: Some(accepting),
        }
    }

    /// Returns the address of the proxy.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the port of [`FaultProxy::addr`].
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Returns the URL of the proxy with a scheme such as `redis`.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.addr)
    }

    /// Sets the mode for all bytes from now on.
    pub fn set_mode(&self, mode: Mode) {
        *lock(&self.shared.mode) = mode;
    }

    /// Returns the current mode.
    pub fn mode(&self) -> Mode {
        *lock(&self.shared.mode)
    }

    /// Applies a fault to the next reply on any connection. Several faults are queued: each
    /// reply gets the first that matches.
    pub fn fault_next_reply(&self, fault: ReplyFault) {
        lock(&self.shared.faults).push(PendingFault::for_any(fault));
    }

    /// Applies a fault to the next reply to a request that contains these bytes, such as
    /// `EVALSHA` or a key. So the client's pings and handshakes do not use up the fault.
    pub fn fault_reply_to(&self, request: impl AsRef<[u8]>, fault: ReplyFault) {
        lock(&self.shared.faults).push(PendingFault::for_request(request.as_ref(), fault));
    }

    /// Returns the number of faults that are not applied yet.
    pub fn faults_pending(&self) -> usize {
        lock(&self.shared.faults).len()
    }

    /// Removes all pending faults and sets [`Mode::Pass`].
    pub fn heal(&self) {
        lock(&self.shared.faults).clear();
        self.set_mode(Mode::Pass);
    }

    /// Closes all connections gracefully.
    pub fn close_connections(&self) {
        self.shared.for_each_connection(Connection::close);
    }

    /// Resets all connections: the client gets a TCP RST.
    pub fn reset_connections(&self) {
        self.shared.for_each_connection(Connection::reset);
    }

    /// Returns the number of connections so far, including refused ones.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Returns the number of bytes that clients have sent, including discarded ones.
    pub fn bytes_up(&self) -> u64 {
        self.shared.bytes_up.load(Ordering::SeqCst)
    }

    /// Returns the number of bytes that the server has sent, including discarded ones.
    pub fn bytes_down(&self) -> u64 {
        self.shared.bytes_down.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread. If that fails, it has ended.
        let _ = TcpStream::connect(self.addr);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.close_connections();
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            // The client may have disconnected already.
            let Ok(client) = client else { continue };
            self.accepted.fetch_add(1, Ordering::SeqCst);
            let mode = *lock(&self.mode);
            connection::open(self, client, mode);
        }
    }

    fn for_each_connection(&self, mut act: impl FnMut(&Connection)) {
        let connections = lock(&self.connections);
        connections
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|it| act(&it));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
