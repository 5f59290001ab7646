//! A connection that goes on in another protocol: bytes go both ways, unread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::counted::Counted;
use super::pulse::InFlight;
use super::upstreams::Lease;

/// Once the service is to end, whoever says nothing for so long is cut off.
const QUIET: Duration = Duration::from_secs(1);

/// The upstream's end, as soon as it is there.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) upstream: OnUpgrade,
    /// Held while it is open.
    pub(super) lease: Lease,
    pub(super) in_flight: Option<InFlight>,
}

/// Where the one tunnel that a connection may become is left for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot(Arc<Mutex<Option<Tunnel>>>);

impl Slot {
    pub(super) fn put(&self, tunnel: Tunnel) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
    }

    /// Counts the tunnel as something that the connection does.
    pub(super) fn hold(&self, in_flight: InFlight) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tunnel) = &mut *slot {
            tunnel.in_flight = Some(in_flight);
        }
    }

    pub(super) fn take(&self) -> Option<Tunnel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Tunnel {
    /// Carries bytes between the client and the upstream until one of them ends, or
    /// nothing moves for too long.
    pub(super) async fn run<S>(self, client: S, idle: Duration, closing: &CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self {
            upstream,
            lease,
            in_flight,
        } = self;
        let Ok(upstream) = upstream.await else {
            return;
        };
        let moved = Arc::new(AtomicU64::new(0));
        let mut client = Counted::new(client, &moved);
        let mut upstream = Counted::new(TokioIo::new(upstream), &moved);
        let carried = tokio::io::copy_bidirectional(&mut client, &mut upstream);
        tokio::select! {
            carried = carried => if let Err(error) = carried {
                tracing::debug!(%error, "a tunnel broke");
            },
            () = still(&moved, idle) => tracing::debug!("nothing moves in a tunnel"),
            () = async {
                closing.cancelled().await;
                still(&moved, QUIET.min(idle)).await;
            } => {}
        }
        drop((lease, in_flight));
    }
}

/// Waits until nothing has moved for so long.
async fn still(moved: &AtomicU64, most: Duration) {
    loop {
        let before = moved.load(Ordering::Relaxed);
        tokio::time::sleep(most).await;
        if moved.load(Ordering::Relaxed) == before {
            return;
        }
    }
}
