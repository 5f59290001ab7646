//! An upstream for thousands of connections, which keeps nothing of what it reads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::OK;

/// Answers requests without a body as soon as their heads are there, and those with
/// one when it ends with `!`. Ends when it is dropped.
pub(super) struct HoldingUpstream {
    pub(super) address: SocketAddr,
    counts: Arc<Counts>,
    _end: DropGuard,
}

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    held: AtomicUsize,
}

impl HoldingUpstream {
    pub(super) fn start() -> Self {
        // Clients and connections to it are many, and all in this process.
        rlimit::increase_nofile_limit(u64::MAX).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let (end, counted) = (CancellationToken::new(), Arc::clone(&counts));
        let ended = end.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let accept = async {
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        tokio::spawn(serve(stream, Arc::clone(&counted)));
                    }
                };
                tokio::select! {
                    () = accept => {}
                    () = ended.cancelled() => {}
                }
            });
        });
        Self {
            address,
            counts,
            _end: end.drop_guard(),
        }
    }

    /// How many connections there are now.
    pub(super) fn open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    /// How many of them have a request that is not answered.
    pub(super) fn held(&self) -> usize {
        self.counts.held.load(Ordering::Relaxed)
    }
}

async fn serve(mut stream: TcpStream, counts: Arc<Counts>) {
    counts.open.fetch_add(1, Ordering::Relaxed);
    let mut bytes = Vec::new();
    let mut is_held = false;
    while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
        let is_post = bytes.starts_with(b"POST");
        if is_post && !is_held {
            is_held = true;
            counts.held.fetch_add(1, Ordering::Relaxed);
        }
        let end: &[u8] = if is_post { b"!" } else { b"\r\n\r\n" };
        if bytes.ends_with(end) {
            bytes = Vec::new();
            if std::mem::take(&mut is_held) {
                counts.held.fetch_sub(1, Ordering::Relaxed);
            }
            if stream.write_all(OK.as_bytes()).await.is_err() {
                break;
            }
        }
    }
    if is_held {
        counts.held.fetch_sub(1, Ordering::Relaxed);
    }
    counts.open.fetch_sub(1, Ordering::Relaxed);
}
