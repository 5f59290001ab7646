//! One connection over HTTP/2.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::Request;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::frame_watch::{FrameWatch, WatchedStream};
use crate::upstream::connection_limit::MAX_STREAMS;
use crate::upstream::server::UpstreamStream;

/// How much of a response may be on its way or held before the client has accepted it.
const STREAM_WINDOW: u32 = 128 * 1024;
/// Enough for all streams together, so that clients which read slowly do not stop the others.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// How much of a request may be held before the connection has accepted it.
const SEND_BUFFER: usize = 64 * 1024;
/// The largest head of a response.
const MAX_HEAD: u32 = 256 * 1024;
/// The number of streams before the server has announced its limit, which is never as high.
const NOT_ANNOUNCED: usize = usize::MAX - 1;
/// How long a connection that is not used any more may take to say so.
const LINGER: Duration = Duration::from_secs(1);

/// A connection, for as long as it takes requests or carries some.
#[derive(Debug)]
pub(crate) struct Http2Connection {
    sender: SendRequest<Bytes>,
    watch: Arc<FrameWatch>,
    /// The number of requests that it carries.
    streams: AtomicUsize,
    /// The number of requests so far.
    begun: AtomicUsize,
    /// Whether it takes no more requests, although the server has not ended it.
    is_retired: AtomicBool,
    /// Notified when a stream has ended, or the connection.
    changed: Arc<Notify>,
    /// Ends the connection when this is dropped.
    _release: DropGuard,
}

/// A place for one request on a connection.
#[derive(Debug)]
pub(crate) struct StreamSlot {
    connection: Arc<Http2Connection>,
    /// Whether the connection has carried a request before.
    pub(crate) is_reused: bool,
}

impl Http2Connection {
    /// Opens a connection over this stream, and waits until the server has announced how many
    /// streams it allows.
    pub(crate) async fn open(
        stream: UpstreamStream,
        changed: Arc<Notify>,
    ) -> io::Result<Arc<Self>> {
        let watch = Arc::new(FrameWatch::new());
        let stream = WatchedStream::new(stream, Arc::clone(&watch));
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(MAX_HEAD)
            .initial_max_send_streams(NOT_ANNOUNCED);
        let (sender, connection) = builder.handshake(stream).await.map_err(to_io)?;
        let (announced, settings) = oneshot::channel();
        let released = CancellationToken::new();
        let opened = Arc::new(Self {
            sender,
            watch: Arc::clone(&watch),
            streams: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            is_retired: AtomicBool::new(false),
            changed: Arc::clone(&changed),
            _release: released.clone().drop_guard(),
        });
        tokio::spawn(async move {
            drive(connection, announced, &released).await;
            watch.end();
            changed.notify_waiters();
        });
        match settings.await {
            Ok(()) => Ok(opened),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended before the settings of HTTP/2",
            )),
        }
    }

    /// Returns whether it takes requests, now or when others have ended.
    pub(crate) fn is_open(&self) -> bool {
        self.watch.is_open() && !self.is_retired.load(Ordering::Relaxed) && self.max_streams() > 0
    }

    /// Returns how many requests there have been, if there are none now.
    pub(super) fn idle_after(&self) -> Option<usize> {
        let is_idle = self.streams.load(Ordering::Relaxed) == 0;
        is_idle.then(|| self.begun.load(Ordering::Relaxed))
    }

    /// Reserves a place for a request, if there is one.
    pub(super) fn reserve(self: &Arc<Self>) -> Option<StreamSlot> {
        let (max, order) = (self.max_streams(), Ordering::Relaxed);
        let add = |count| (count < max).then_some(count + 1);
        self.streams.fetch_update(order, order, add).ok()?;
        Some(StreamSlot {
            connection: Arc::clone(self),
            is_reused: self.begun.fetch_add(1, order) > 0,
        })
    }

    fn max_streams(&self) -> usize {
        self.sender.current_max_send_streams().min(MAX_STREAMS)
    }
}

impl StreamSlot {
    /// Sends the head of a request.
    pub(crate) fn send(
        &self,
        head: Request<()>,
        is_whole: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let sent = self.connection.sender.clone().send_request(head, is_whole);
        if sent.is_err() {
            self.retire();
        }
        sent
    }

    /// Returns whether the server has ended the connection without processing this stream.
    pub(crate) fn is_left_out(&self, stream: u32) -> bool {
        self.connection.watch.leaves_out(stream)
    }

    /// Sends no more requests over the connection if nothing has arrived in the second half of the
    /// time that a request has waited: the server may be gone without a word. (To ask by `PING`
    /// would offend gRPC servers, which allow few.)
    pub(crate) fn retire_if_silent(&self, waited: Duration) {
        if self.connection.watch.is_silent_for(waited / 2) {
            self.retire();
        }
    }

    fn retire(&self) {
        self.connection.is_retired.store(true, Ordering::Relaxed);
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.connection.streams.fetch_sub(1, Ordering::Relaxed);
        self.connection.changed.notify_waiters();
    }
}

/// Moves the frames of a connection until it ends, or is released. `announced` learns that the
/// server has announced its limits.
async fn drive(
    connection: Connection<WatchedStream, Bytes>,
    announced: oneshot::Sender<()>,
    released: &CancellationToken,
) {
    let mut connection = pin!(connection);
    let mut announced = Some(announced);
    let moved = poll_fn(|cx| {
        let polled = connection.as_mut().poll(cx);
        if connection.max_concurrent_send_streams() != NOT_ANNOUNCED
            && let Some(announced) = announced.take()
        {
            // The connection may not be wanted any more.
            let _ = announced.send(());
        }
        polled
    });
    let ended = tokio::select! {
        ended = moved => ended,
        () = released.cancelled() => {
            let said = tokio::time::timeout(LINGER, connection.as_mut()).await;
            said.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to an upstream ended early");
    }
}

fn to_io(error: h2::Error) -> io::Error {
    if error.is_io()
        && let Some(error) = error.get_io()
    {
        return io::Error::new(error.kind(), error.to_string());
    }
    io::Error::other(error)
}
