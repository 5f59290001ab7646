//! How connections come in, and how they are asked to leave.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::descriptors::DescriptorShare;
use crate::engine::Listener;

/// How many connections a listener holds at most, over all cores, where nothing
/// else is said.
pub(super) const MOST_CONNECTIONS: usize = 10_000;
/// How long to wait when no connection can be taken, for want of descriptors.
const BREATHER: Duration = Duration::from_millis(50);
/// Of so many times in a row that none can be taken, one is told.
const TOLD: u32 = 100;

/// The door of one core.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    /// Closes when the service ends. Each core has its own, so that waiting for
    /// it is no meeting of all cores.
    pub(crate) closing: CancellationToken,
    inside: TaskTracker,
    /// Of each listener: one must not take those of another.
    places: [Arc<Semaphore>; Listener::ALL.len()],
    /// The descriptors of each listener.
    descriptors: [DescriptorShare; Listener::ALL.len()],
}

impl Door {
    /// The doors of all cores, which close together with `closing`. `most` says how
    /// many connections a listener holds, over all cores, as far as there are
    /// descriptors for them.
    pub(crate) fn for_cores(
        cores: usize,
        closing: &CancellationToken,
        descriptors: [DescriptorShare; Listener::ALL.len()],
        most: impl Fn(Listener) -> usize,
    ) -> Vec<Self> {
        let places = |listener| most(listener).min(Semaphore::MAX_PERMITS);
        let places = Listener::ALL.map(|listener| Arc::new(Semaphore::new(places(listener))));
        let door = |_| Self {
            closing: closing.child_token(),
            inside: TaskTracker::new(),
            places: places.clone(),
            descriptors: descriptors.clone(),
        };
        (0..cores).map(door).collect()
    }

    /// Takes connections until the door closes, and has each served.
    pub(crate) fn open<F>(
        &self,
        listener: Listener,
        socket: TcpListener,
        serve: impl Fn(TcpStream, SocketAddr) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        // Whoever takes others in counts as inside until he is done.
        self.inside
            .spawn(self.clone().admit(listener, socket, serve));
    }

    async fn admit<F>(
        self,
        listener: Listener,
        socket: TcpListener,
        serve: impl Fn(TcpStream, SocketAddr) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let places = &self.places[listener as usize];
        let descriptors = &self.descriptors[listener as usize];
        let mut failures = 0;
        let mut has_looked = false;
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = socket.accept() => accepted,
                () = self.closing.cancelled() => {
                    // Those who already stand at the door are let in before it
                    // closes. When our turn comes again, we have heard of them.
                    if has_looked {
                        break;
                    }
                    has_looked = true;
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            match accepted {
                Ok((stream, peer)) => {
                    failures = 0;
                    has_looked = false;
                    // Whoever finds no place waits on the threshold, and those
                    // behind him outside. A place that is held for nobody yet would
                    // be missing on another core.
                    let place = tokio::select! {
                        biased;
                        place = async {
                            let place = Arc::clone(places).acquire_owned().await;
                            (place, descriptors.acquire().await)
                        } => place,
                        () = self.closing.cancelled() => break,
                    };
                    // Answers are small and wanted at once. If it cannot be set,
                    // they are merely later.
                    let _ = stream.set_nodelay(true);
                    let served = serve(stream, peer);
                    self.inside.spawn(async move {
                        served.await;
                        drop(place);
                    });
                }
                Err(error) if is_about_one(&error) => {}
                Err(error) => {
                    if failures % TOLD == 0 {
                        let listener = listener.name();
                        tracing::warn!(listener, %error, "no connection can be taken");
                    }
                    failures += 1;
                    tokio::time::sleep(BREATHER).await;
                }
            }
        }
    }

    /// Waits until everybody has left.
    pub(crate) async fn emptied(&self) {
        self.inside.close();
        self.inside.wait().await;
    }
}

/// Whether it was the one who came that went away again.
fn is_about_one(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}
