//! A connection that has switched to another protocol: bytes are copied both ways.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fluxgate_http::HeldUntilDropped;
use fluxgate_http::server::PrefixedStream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;

use crate::request_record::OpenRecord;
use crate::timeouts::InFlight;
use crate::upstream::{Assignment, UpstreamStream};

/// Once the service shuts down, a tunnel in which nothing moves for this long is closed.
const QUIET: Duration = Duration::from_secs(1);

/// The upstream's side of a tunnel.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) upstream: PrefixedStream<UpstreamStream>,
    /// Counts the request as outstanding.
    pub(super) assignment: Assignment,
    pub(super) in_flight: Option<InFlight>,
    /// The slots of the request, which are released when the tunnel ends.
    pub(super) held: HeldUntilDropped,
    /// Counts the request when the tunnel ends.
    pub(super) record: Option<Box<OpenRecord>>,
}

/// Where a request leaves the tunnel that its connection becomes.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingTunnel(Arc<Mutex<Option<Tunnel>>>);

impl PendingTunnel {
    pub(super) fn put(&self, tunnel: Tunnel) {
        *self.lock() = Some(tunnel);
    }

    /// Counts the tunnel as a request in flight, until it ends.
    pub(super) fn hold(&self, in_flight: InFlight, record: Box<OpenRecord>) {
        if let Some(tunnel) = &mut *self.lock() {
            tunnel.in_flight = Some(in_flight);
            tunnel.record = Some(record);
        }
    }

    /// Keeps the slots of the request until the tunnel ends.
    pub(super) fn keep(&self, held: HeldUntilDropped) {
        if let Some(tunnel) = &mut *self.lock() {
            tunnel.held = held;
        }
    }

    pub(super) fn take(&self) -> Option<Tunnel> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Tunnel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tunnel {
    /// Copies bytes between the client and the upstream until one of them closes, or nothing
    /// moves for `idle`.
    pub(super) async fn run<S>(self, client: S, idle: Duration, closing: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self {
            upstream,
            assignment,
            in_flight,
            held,
            mut record,
        } = self;
        let (read, sent) = (AtomicU64::new(0), AtomicU64::new(0));
        let count = |bytes: &[u8]| {
            read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        };
        let count_sent = |bytes: &[u8]| {
            count(bytes);
            sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        };
        let mut client = InspectReader::new(client, count);
        let mut upstream = InspectReader::new(upstream, count_sent);
        let copied = tokio::io::copy_bidirectional(&mut client, &mut upstream);
        tokio::select! {
            copied = copied => if let Err(error) = copied {
                tracing::debug!(%error, "a tunnel failed");
            },
            () = until_quiet(&read, idle) => tracing::debug!("a tunnel was idle for too long"),
            () = async {
                closing.cancelled().await;
                until_quiet(&read, QUIET.min(idle)).await;
            } => {}
        }
        if let Some(record) = &mut record {
            let sent = sent.load(Ordering::Relaxed);
            record.record.bytes_out = sent;
            let received = read.load(Ordering::Relaxed) - sent;
            record.bytes_in.store(received, Ordering::Relaxed);
        }
        drop((assignment, in_flight, held, record));
    }
}

/// Waits until nothing has been read for this long.
async fn until_quiet(read: &AtomicU64, quiet: Duration) {
    loop {
        let before = read.load(Ordering::Relaxed);
        tokio::time::sleep(quiet).await;
        if read.load(Ordering::Relaxed) == before {
            return;
        }
    }
}
