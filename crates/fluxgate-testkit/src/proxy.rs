//! A TCP proxy that injects faults.

mod connection;
mod fault;
mod frame;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use connection::{Connection, Connections};
pub use fault::{Mode, ReplyFault};
use fault::{PendingFault, ProxyState, lock};

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
    state: Arc<ProxyState>,
    connections: Arc<Connections>,
    accepting: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Starts a proxy on a free port. The upstream need not be running yet.
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen on loopback");
        let addr = listener.local_addr().expect("a listener has an address");
        let state = Arc::new(ProxyState::new(upstream));
        let connections = Arc::<Connections>::default();
        let accepting = {
            let (state, connections) = (Arc::clone(&state), Arc::clone(&connections));
            thread::spawn(move || accept(&listener, &state, &connections))
        };
        Self {
            addr,
            state,
            connections,
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
        *lock(&self.state.mode) = mode;
    }

    /// Returns the current mode.
    pub fn mode(&self) -> Mode {
        *lock(&self.state.mode)
    }

    /// Applies a fault to the next reply on any connection. Several faults are queued: each
    /// reply gets the first that matches.
    pub fn fault_next_reply(&self, fault: ReplyFault) {
        lock(&self.state.faults).push(PendingFault::for_any(fault));
    }

    /// Applies a fault to the next reply to a request that contains these bytes, such as
    /// `EVALSHA` or a key. So the client's pings and handshakes do not use up the fault.
    pub fn fault_reply_to(&self, request: impl AsRef<[u8]>, fault: ReplyFault) {
        lock(&self.state.faults).push(PendingFault::for_request(request.as_ref(), fault));
    }

    /// Returns the number of faults that are not applied yet.
    pub fn faults_pending(&self) -> usize {
        lock(&self.state.faults).len()
    }

    /// Removes all pending faults and sets [`Mode::Pass`].
    pub fn heal(&self) {
        lock(&self.state.faults).clear();
        self.set_mode(Mode::Pass);
    }

    /// Closes all connections gracefully.
    pub fn close_connections(&self) {
        self.connections.for_each(Connection::close);
    }

    /// Resets all connections: the client gets a TCP RST.
    pub fn reset_connections(&self) {
        self.connections.for_each(Connection::reset);
    }

    /// Returns the number of connections so far, including refused ones.
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    /// Returns the number of bytes that clients have sent, including discarded ones.
    pub fn bytes_up(&self) -> u64 {
        self.state.bytes_up.load(Ordering::SeqCst)
    }

    /// Returns the number of bytes that the server has sent, including discarded ones.
    pub fn bytes_down(&self) -> u64 {
        self.state.bytes_down.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread. If that fails, it has ended.
        let _ = TcpStream::connect(self.addr);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.close_connections();
    }
}

fn accept(listener: &TcpListener, state: &Arc<ProxyState>, connections: &Arc<Connections>) {
    for client in listener.incoming() {
        if state.stopped.load(Ordering::SeqCst) {
            return;
        }
        // The client may have disconnected already.
        let Ok(client) = client else { continue };
        state.accepted.fetch_add(1, Ordering::SeqCst);
        let mode = *lock(&state.mode);
        connection::open(state, connections, client, mode);
    }
}
