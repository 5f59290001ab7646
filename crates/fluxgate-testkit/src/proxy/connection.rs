//! A client's connection and the matching connection to the server.
//!
//! Each direction has a reading and a writing thread with a queue in between. So every chunk
//! is delayed equally, and delays of consecutive chunks do not add up.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::fault::{Mode, ProxyState, lock};
use super::frame::FrameReader;
use crate::wait::{WAIT_TIMEOUT, now};

/// Two sockets, which are closed when the last of their threads ends.
#[derive(Debug)]
pub(super) struct Connection {
    state: Arc<ProxyState>,
    client: TcpStream,
    /// `None` if the connection was opened in [`Mode::BlackHole`].
    server: Option<TcpStream>,
    /// The requests without a reply, oldest first.
    requests: Mutex<VecDeque<Vec<u8>>>,
    /// Whether the connection ends with a reset, so that it must not be closed gracefully.
    is_reset: AtomicBool,
}

/// The open connections. Each lives as long as one of its threads.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Vec<Weak<Connection>>>);

impl Connections {
    pub(super) fn for_each(&self, act: impl Fn(&Connection)) {
        let connections = lock(&self.0);
        let open = connections.iter().filter_map(Weak::upgrade);
        open.for_each(|connection| act(&connection));
    }

    fn add(&self, connection: &Arc<Connection>) {
        let mut all = lock(&self.0);
        all.retain(|old| old.strong_count() > 0);
        all.push(Arc::downgrade(connection));
    }
}

impl Connection {
    fn new(state: &Arc<ProxyState>, client: TcpStream, server: Option<TcpStream>) -> Self {
        for stream in [Some(&client), server.as_ref()].into_iter().flatten() {
            // Failure only makes it slower.
            let _ = stream.set_nodelay(true);
        }
        Self {
            state: Arc::clone(state),
            client,
            server,
            requests: Mutex::default(),
            is_reset: AtomicBool::new(false),
        }
    }

    /// Closes the connection gracefully: both sides see the end of the stream.
    pub(super) fn close(&self) {
        if !self.is_reset.load(Ordering::SeqCst) {
            self.shut_down(Shutdown::Both);
        }
    }

    /// Resets the connection.
    pub(super) fn reset(&self) {
        self.is_reset.store(true, Ordering::SeqCst);
        reset_on_close(&self.client);
        // Wakes the readers without sending anything. The writers end after the readers,
        // and then the sockets are closed.
        self.shut_down(Shutdown::Read);
    }

    fn shut_down(&self, how: Shutdown) {
        for stream in [Some(&self.client), self.server.as_ref()]
            .into_iter()
            .flatten()
        {
            // The stream may be closed already.
            let _ = stream.shutdown(how);
        }
    }

    /// Reads until the stream ends or `take` returns `false`.
    fn read(&self, mut from: &TcpStream, count: &AtomicU64, take: impl Fn(Chunk) -> bool) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            count.fetch_add(length as u64, Ordering::SeqCst);
            let delay = match *lock(&self.state.mode) {
                Mode::Delay(delay) => delay,
                _ => Duration::ZERO,
            };
            let chunk = Chunk {
                due: now() + delay,
                bytes: buffer[..length].to_vec(),
            };
            if !take(chunk) {
                return;
            }
        }
    }

    /// Forwards and records requests.
    fn write_requests(&self, mut to: &TcpStream, queue: Receiver<Chunk>) {
        let mut frames = FrameReader::default();
        for chunk in queue {
            let Some(bytes) = self.delayed(chunk) else {
                continue;
            };
            // Recorded first, because the reply could arrive before that otherwise.
            frames.add(&bytes);
            while let Some(request) = frames.next() {
                lock(&self.requests).push_back(request.bytes);
            }
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
    }

    /// Forwards replies, with faults applied.
    fn write_replies(&self, mut to: &TcpStream, queue: Receiver<Chunk>) {
        let mut frames = FrameReader::default();
        for chunk in queue {
            let Some(bytes) = self.delayed(chunk) else {
                continue;
            };
            frames.add(&bytes);
            while let Some(reply) = frames.next() {
                let fault = if reply.push {
                    None
                } else {
                    let request = lock(&self.requests).pop_front();
                    lock(&self.state.faults).take(request.as_deref())
                };
                let (bytes, close) = match fault {
                    None => (reply.bytes, false),
                    Some(fault) => fault.apply(reply.bytes),
                };
                if to.write_all(&bytes).is_err() || close {
                    return;
                }
            }
        }
        // The server closed in the middle of a reply. The client may be closed as well.
        let _ = to.write_all(&frames.rest());
    }

    /// Waits until a chunk is due. Returns `None` in a black hole.
    fn delayed(&self, chunk: Chunk) -> Option<Vec<u8>> {
        thread::sleep(chunk.due.saturating_duration_since(now()));
        let is_discarded = *lock(&self.state.mode) == Mode::BlackHole;
        (!is_discarded).then_some(chunk.bytes)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.state.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The bytes of one read, and when to forward them.
struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

/// Serves a client in new threads.
pub(super) fn open(
    state: &Arc<ProxyState>,
    connections: &Arc<Connections>,
    client: TcpStream,
    mode: Mode,
) {
    if mode == Mode::Refuse {
        reset_on_close(&client);
        return;
    }
    state.open.fetch_add(1, Ordering::SeqCst);
    let (state, connections) = (Arc::clone(state), Arc::clone(connections));
    let register = move |state: &Arc<ProxyState>, client: TcpStream, server: Option<TcpStream>| {
        let connection = Arc::new(Connection::new(state, client, server));
        connections.add(&connection);
        // The proxy may have closed all connections while this one was being opened.
        if state.stopped.load(Ordering::SeqCst) {
            connection.close();
        }
        connection
    };
    thread::spawn(move || match mode {
        Mode::BlackHole => {
            let connection = register(&state, client, None);
            connection.read(&connection.client, &state.bytes_up, |_| true);
        }
        _ => match TcpStream::connect_timeout(&state.upstream, WAIT_TIMEOUT) {
            Ok(server) => serve(&register(&state, client, Some(server))),
            Err(_) => {
                reset_on_close(&client);
                state.open.fetch_sub(1, Ordering::SeqCst);
            }
        },
    });
}

fn serve(connection: &Arc<Connection>) {
    let (requests, request_queue) = mpsc::channel();
    let (replies, reply_queue) = mpsc::channel();
    run(connection, move |it, client, _| {
        it.read(client, &it.state.bytes_up, |chunk| {
            requests.send(chunk).is_ok()
        });
    });
    run(connection, move |it, _, server| {
        it.read(server, &it.state.bytes_down, |chunk| {
            replies.send(chunk).is_ok()
        });
    });
    run(connection, move |it, client, _| {
        it.write_replies(client, reply_queue);
        it.close();
    });
    run(connection, move |it, _, server| {
        it.write_requests(server, request_queue);
        it.close();
    });
}

/// Runs a part of a connection in a thread.
fn run(
    connection: &Arc<Connection>,
    part: impl FnOnce(&Connection, &TcpStream, &TcpStream) + Send + 'static,
) {
    let connection = Arc::clone(connection);
    thread::spawn(move || {
        if let Some(server) = &connection.server {
            part(&connection, &connection.client, server);
        }
    });
}

/// Makes the socket send a reset when it is closed.
fn reset_on_close(stream: &TcpStream) {
    // Fails if the socket is closed already.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
