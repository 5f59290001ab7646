//! Connections between instances and servers.
//!
//! A connection is a stream of bytes in each direction, in order, as TCP is. What an instance
//! writes is collected here; the world delivers it when its time comes.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use fluxgate_redis::simulation::{Connector, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::redis::Session;

/// What both ends of a connection share.
#[derive(Debug, Default)]
struct Pipe {
    /// What the instance has written and the network has not taken yet.
    written: Vec<u8>,
    /// What has arrived at the instance and was not read yet.
    arrived: VecDeque<u8>,
    reader: Option<Waker>,
    /// Whether the server or the network has closed it.
    is_closed: bool,
    /// Whether the instance has dropped it.
    is_dropped: bool,
}

fn lock(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of an instance.
#[derive(Debug)]
struct ClientStream(Arc<Mutex<Pipe>>);

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.0);
        if pipe.arrived.is_empty() {
            if pipe.is_closed {
                return Poll::Ready(Ok(()));
            }
            pipe.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = buffer.remaining().min(pipe.arrived.len());
        let bytes: Vec<u8> = pipe.arrived.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut pipe = lock(&self.0);
        if pipe.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        pipe.written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        lock(&self.0).is_dropped = true;
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) instance: usize,
    pub(crate) port: u16,
    pub(crate) session: Session,
    /// When the last bytes in each direction arrive: later ones do not overtake them.
    pub(crate) arrives_at_server: u64,
    pub(crate) arrives_at_client: u64,
    /// Whether the network has lost it: nothing that was sent arrives.
    pub(crate) is_reset: bool,
    pipe: Arc<Mutex<Pipe>>,
}

impl Connection {
    /// Takes what the instance has written.
    pub(crate) fn take_written(&self) -> Vec<u8> {
        std::mem::take(&mut lock(&self.pipe).written)
    }

    /// Hands bytes to the instance.
    pub(crate) fn deliver(&self, bytes: &[u8]) {
        let mut pipe = lock(&self.pipe);
        pipe.arrived.extend(bytes);
        let reader = pipe.reader.take();
        drop(pipe);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Resets it, as a server that ends or a network that fails.
    pub(crate) fn reset(&mut self) {
        self.is_reset = true;
        let mut pipe = lock(&self.pipe);
        pipe.is_closed = true;
        let reader = pipe.reader.take();
        drop(pipe);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Returns whether no bytes can be sent through it any more.
    pub(crate) fn is_over(&self) -> bool {
        let pipe = lock(&self.pipe);
        pipe.is_closed || pipe.is_dropped && pipe.written.is_empty()
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Network {
    connections: Vec<Option<Connection>>,
    /// The connections of each instance that may not be over.
    open: Vec<Vec<usize>>,
    /// The ports at which no server listens.
    pub(crate) refused: BTreeSet<u16>,
    /// The instance that runs now.
    pub(crate) running: usize,
}

impl Network {
    /// Returns how the running instance connects.
    pub(crate) fn connector(network: &Rc<RefCell<Self>>) -> Connector {
        let network = Rc::clone(network);
        Connector::new(move |_, port| network.borrow_mut().connect(port))
    }

    fn connect(&mut self, port: u16) -> io::Result<Box<dyn Stream>> {
        if self.refused.contains(&port) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let pipe = Arc::<Mutex<Pipe>>::default();
        let number = self.connections.len();
        let instance = self.running;
        self.connections.push(Some(Connection {
            instance,
            port,
            session: Session::default(),
            arrives_at_server: 0,
            arrives_at_client: 0,
            is_reset: false,
            pipe: Arc::clone(&pipe),
        }));
        if self.open.len() <= instance {
            self.open.resize_with(instance + 1, Vec::new);
        }
        self.open[instance].push(number);
        Ok(Box::new(ClientStream(pipe)))
    }

    /// Returns a connection, unless it was forgotten because it is over.
    pub(crate) fn get(&mut self, number: usize) -> Option<&mut Connection> {
        self.connections.get_mut(number)?.as_mut()
    }

    /// Returns the numbers of the connections of an instance.
    pub(crate) fn open_of(&self, instance: usize) -> &[usize] {
        self.open.get(instance).map_or(&[], Vec::as_slice)
    }

    /// Returns the numbers of all connections to a server.
    pub(crate) fn open_to(&self, port: u16) -> Vec<usize> {
        let all = self.open.iter().flatten().copied();
        let is_to = |number: &usize| {
            let connection = self.connections[*number].as_ref();
            connection.is_some_and(|it| it.port == port)
        };
        all.filter(is_to).collect()
    }

    /// Stops sending what the instance writes to connections that are over.
    pub(crate) fn forget_closed(&mut self, instance: usize) {
        let connections = &self.connections;
        if let Some(open) = self.open.get_mut(instance) {
            open.retain(|number| {
                let connection = connections[*number].as_ref();
                connection.is_some_and(|it| !it.is_over())
            });
        }
    }
}
