//! One client's connection and the one made for it.
//!
//! Each direction has two threads, one that reads and one that writes, with a
//! queue between them: so a delay holds each piece back for as long, and does
//! not add up when pieces follow each other closely.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::fault::Mode;
use super::frame::Frames;
use super::{Shared, lock};
use crate::wait::{WAIT_TIMEOUT, now};

/// Two sockets. They are closed when the last of their threads has ended.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    client: TcpStream,
    /// None for one that was made into a black hole.
    server: Option<TcpStream>,
    /// The requests without a reply, oldest first.
    requests: Mutex<VecDeque<Vec<u8>>>,
    /// It ends with a reset, so nothing may end it in good order any more.
    broken: AtomicBool,
}

impl Connection {
    /// Ends it in good order: both sides see the end of the stream.
    pub(super) fn close(&self) {
        if !self.broken.load(Ordering::SeqCst) {
            self.shut_down(Shutdown::Both);
        }
    }

    /// Ends it with a reset.
    pub(super) fn reset(&self) {
        self.broken.store(true, Ordering::SeqCst);
        break_on_close(&self.client);
        // Wakes the readers and says nothing to the other side. The writers
        // end when the readers have, and then the sockets are closed.
        self.shut_down(Shutdown::Read);
    }

    fn shut_down(&self, how: Shutdown) {
        for stream in [Some(&self.client), self.server.as_ref()]
            .into_iter()
            .flatten()
        {
            // It may be closed already.
            let _ = stream.shutdown(how);
        }
    }

    /// Reads until the stream ends or a piece is not taken.
    fn read(&self, mut from: &TcpStream, count: &AtomicU64, take: impl Fn(Piece) -> bool) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            count.fetch_add(length as u64, Ordering::SeqCst);
            let delay = match *lock(&self.shared.mode) {
                Mode::Delay(delay) => delay,
                _ => Duration::ZERO,
            };
            let piece = Piece {
                due: now() + delay,
                bytes: buffer[..length].to_vec(),
            };
            if !take(piece) {
                return;
            }
        }
    }

    /// Passes requests on and remembers them.
    fn write_requests(&self, mut to: &TcpStream, queue: Receiver<Piece>) {
        let mut frames = Frames::default();
        for piece in queue {
            let Some(bytes) = self.held_back(piece) else {
                continue;
            };
            // Before it is sent, or else the reply might come first.
            frames.add(&bytes);
            while let Some(request) = frames.next() {
                lock(&self.requests).push_back(request.bytes);
            }
            if to.write_all(&bytes).is_err() {
                return;
            }
        }
    }

    /// Passes replies on, or what faults make of them.
    fn write_replies(&self, mut to: &TcpStream, queue: Receiver<Piece>) {
        let mut frames = Frames::default();
        for piece in queue {
            let Some(bytes) = self.held_back(piece) else {
                continue;
            };
            frames.add(&bytes);
            while let Some(reply) = frames.next() {
                let fault = if reply.push {
                    None
                } else {
                    let request = lock(&self.requests).pop_front();
                    lock(&self.shared.armory).take(request.as_deref())
                };
                let (bytes, close) = match fault {
                    None => (reply.bytes, false),
                    Some(fault) => {
                        let fate = fault.apply(reply.bytes);
                        (fate.bytes, fate.close)
                    }
                };
                if to.write_all(&bytes).is_err() || close {
                    return;
                }
            }
        }
        // The server has gone in the middle of a reply. So has the client, if
        // it cannot be written to.
        let _ = to.write_all(&frames.rest());
    }

    /// The bytes when they are due; none in a black hole.
    fn held_back(&self, piece: Piece) -> Option<Vec<u8>> {
        thread::sleep(piece.due.saturating_duration_since(now()));
        let swallowed = *lock(&self.shared.mode) == Mode::BlackHole;
        (!swallowed).then_some(piece.bytes)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes that came in together, and when they may go out.
struct Piece {
    due: Instant,
    bytes: Vec<u8>,
}

/// Serves a client in threads of its own.
pub(super) fn open(shared: &Arc<Shared>, client: TcpStream, mode: Mode) {
    if mode == Mode::Refuse {
        break_on_close(&client);
        return;
    }
    shared.open.fetch_add(1, Ordering::SeqCst);
    let shared = Arc::clone(shared);
    thread::spawn(move || match mode {
        Mode::BlackHole => {
            let connection = register(&shared, client, None);
            connection.read(&connection.client, &shared.bytes_up, |_| true);
        }
        _ => match TcpStream::connect_timeout(&shared.upstream, WAIT_TIMEOUT) {
            Ok(server) => serve(&register(&shared, client, Some(server))),
            Err(_) => {
                break_on_close(&client);
                shared.open.fetch_sub(1, Ordering::SeqCst);
            }
        },
    });
}

fn register(shared: &Arc<Shared>, client: TcpStream, server: Option<TcpStream>) -> Arc<Connection> {
    for stream in [Some(&client), server.as_ref()].into_iter().flatten() {
        // Only a matter of speed.
        let _ = stream.set_nodelay(true);
    }
    let connection = Arc::new(Connection {
        shared: Arc::clone(shared),
        client,
        server,
        requests: Mutex::default(),
        broken: AtomicBool::new(false),
    });
    let mut all = lock(&shared.connections);
    all.retain(|old| old.strong_count() > 0);
    all.push(Arc::downgrade(&connection));
    // Or else one that was just being made would be left when all are closed.
    if shared.stopped.load(Ordering::SeqCst) {
        connection.close();
    }
    connection
}

fn serve(connection: &Arc<Connection>) {
    let (requests, request_queue) = mpsc::channel();
    let (replies, reply_queue) = mpsc::channel();
    run(connection, move |it, client, _| {
        it.read(client, &it.shared.bytes_up, |piece| {
            requests.send(piece).is_ok()
        });
    });
    run(connection, move |it, _, server| {
        it.read(server, &it.shared.bytes_down, |piece| {
            replies.send(piece).is_ok()
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

/// Runs a part of a connection, with its client and its server.
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

/// Has the socket send a reset when it is closed, not the end of the stream.
fn break_on_close(stream: &TcpStream) {
    // If it is closed already, it cannot be broken any more.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
