//! A TCP proxy that breaks things on purpose.

mod connection;
mod fault;
mod frame;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use connection::Connection;
use fault::{Armed, Armory};
pub use fault::{Mode, ReplyFault};

/// Stands between a client and a server, and does to their bytes what a test
/// asks for. A change holds at once, for old connections and for new ones.
///
/// Replies are told apart as RESP2 and RESP3 have it, so that "the next reply"
/// is one reply even if several come in one piece; what RESP3 pushes is none.
/// Where the server speaks something else, each piece that it sends counts as a
/// reply.
///
/// When one side closes, the other is closed too; there are no half-closed
/// connections.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// What the proxy and its threads share.
#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    mode: Mutex<Mode>,
    armory: Mutex<Armory>,
    /// Each lives as long as one of its threads does.
    connections: Mutex<Vec<Weak<Connection>>>,
    stopped: AtomicBool,
    accepted: AtomicU64,
    open: AtomicUsize,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
}

impl FaultProxy {
    /// Starts one on a free port; `upstream` need not be there yet.
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen on loopback");
        let addr = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            upstream,
            mode: Mutex::new(Mode::Pass),
            armory: Mutex::default(),
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

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port of [`FaultProxy::addr`].
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Its URL, as `redis://127.0.0.1:…` for the scheme `redis`.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.addr)
    }

    /// What happens to all bytes from now on.
    pub fn set_mode(&self, mode: Mode) {
        *lock(&self.shared.mode) = mode;
    }

    /// What happens to all bytes now.
    pub fn mode(&self) -> Mode {
        *lock(&self.shared.mode)
    }

    /// Does this to the next reply on any connection. Several faults wait their
    /// turn: each reply gets the first that suits it.
    pub fn fault_next_reply(&self, fault: ReplyFault) {
        lock(&self.shared.armory).push(Armed::to_any(fault));
    }

    /// Does this to the next reply to a request that has these bytes in it, as
    /// `EVALSHA` or a key: so what a client sends on the side, when it connects
    /// or to see whether the server is there, does not use the fault up.
    pub fn fault_reply_to(&self, request: impl AsRef<[u8]>, fault: ReplyFault) {
        lock(&self.shared.armory).push(Armed::to_request(request.as_ref(), fault));
    }

    /// How many faults have not met their reply yet.
    pub fn faults_pending(&self) -> usize {
        lock(&self.shared.armory).len()
    }

    /// Passes everything again: [`Mode::Pass`], and no fault waits.
    pub fn heal(&self) {
        lock(&self.shared.armory).clear();
        self.set_mode(Mode::Pass);
    }

    /// Closes all connections in good order, as a server that goes away does.
    pub fn close_connections(&self) {
        self.shared.for_each_connection(Connection::close);
    }

    /// Breaks all connections: the client gets a TCP reset.
    pub fn reset_connections(&self) {
        self.shared.for_each_connection(Connection::reset);
    }

    /// How many connections clients have made so far, refused ones too.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open now.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many bytes clients have sent, swallowed ones too.
    pub fn bytes_up(&self) -> u64 {
        self.shared.bytes_up.load(Ordering::SeqCst)
    }

    /// How many bytes the server has sent, swallowed ones too.
    pub fn bytes_down(&self) -> u64 {
        self.shared.bytes_down.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts. If it cannot be reached, it has ended.
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
            // The client may have gone before it was accepted.
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
