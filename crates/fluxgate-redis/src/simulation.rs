//! For simulations: connections to servers in the same process.
//!
//! A thread that simulates processes sets how they connect. All else is the code of production:
//! the client library, its protocol, the tasks and the deadlines.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::rc::Rc;

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to a simulated server.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// Opens a connection to a host and port.
type Connect = dyn Fn(&str, u16) -> io::Result<Box<dyn Stream>>;

/// How the stores of a thread connect to their servers.
#[derive(Clone)]
pub struct Connector(Rc<Connect>);

impl Connector {
    /// Creates a connector that calls `connect` with host and port.
    pub fn new(connect: impl Fn(&str, u16) -> io::Result<Box<dyn Stream>> + 'static) -> Self {
        Self(Rc::new(connect))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

thread_local! {
    static CONNECTOR: RefCell<Option<Connector>> = const { RefCell::new(None) };
}

/// Sets how stores that run on this thread connect; `None` for the network.
pub fn set_connector(connector: Option<Connector>) {
    CONNECTOR.set(connector);
}

/// Connects to a simulated server; `None` if this thread uses the network.
pub(crate) fn connect(host: &str, port: u16) -> Option<io::Result<Box<dyn Stream>>> {
    let connector = CONNECTOR.with_borrow(Clone::clone)?;
    Some((connector.0)(host, port))
}
