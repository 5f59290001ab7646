//! An upstream for thousands of connections that counts requests and stores nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::OK;

/// Responds to a request without a body once its head is complete, and to a POST once its
/// body ends with `!`. Stops when dropped.
pub(super) struct CountingUpstream {
    pub(super) address: SocketAddr,
    counts: Arc<Counts>,
    _stop: DropGuard,
}

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    pending: AtomicUsize,
}

impl CountingUpstream {
    pub(super) fn start() -> Self {
        // Both ends of thousands of connections are in this process.
        rlimit::increase_nofile_limit(u64::MAX).unwrap();
        // With a large backlog: if it is full, a client tries again only after a second.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        socket.bind(&any.into()).unwrap();
        socket.listen(4096).unwrap();
        let listener = std::net::TcpListener::from(socket);
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let (stop, thread_counts) = (CancellationToken::new(), Arc::clone(&counts));
        let stopped = stop.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let accept = async {
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        tokio::spawn(serve(stream, Arc::clone(&thread_counts)));
                    }
                };
                tokio::select! {
                    () = accept => {}
                    () = stopped.cancelled() => {}
                }
            });
        });
        Self {
            address,
            counts,
            _stop: stop.drop_guard(),
        }
    }

    /// Returns the number of open connections.
    pub(super) fn open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    /// Returns the number of connections with an unanswered POST.
    pub(super) fn pending(&self) -> usize {
        self.counts.pending.load(Ordering::Relaxed)
    }
}

async fn serve(mut stream: TcpStream, counts: Arc<Counts>) {
    counts.open.fetch_add(1, Ordering::Relaxed);
    let mut bytes = Vec::new();
    let mut is_pending = false;
    while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
        let is_post = bytes.starts_with(b"POST");
        if is_post && !is_pending {
            is_pending = true;
            counts.pending.fetch_add(1, Ordering::Relaxed);
        }
        let end: &[u8] = if is_post { b"!" } else { b"\r\n\r\n" };
        if bytes.ends_with(end) {
            bytes = Vec::new();
            if std::mem::take(&mut is_pending) {
                counts.pending.fetch_sub(1, Ordering::Relaxed);
            }
            if stream.write_all(OK.as_bytes()).await.is_err() {
                break;
            }
        }
    }
    if is_pending {
        counts.pending.fetch_sub(1, Ordering::Relaxed);
    }
    counts.open.fetch_sub(1, Ordering::Relaxed);
}
