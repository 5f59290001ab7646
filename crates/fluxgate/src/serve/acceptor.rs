//! The accept loop of each core, and its graceful shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_http::server::{DescriptorShare, Listener};
use futures_util::FutureExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The most connections of a listener over all cores, unless configured.
pub(crate) const MAX_CONNECTIONS: usize = 10_000;
/// How long to wait after a failed accept: usually descriptors have run out.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// One of this many failures in a row is logged.
const LOG_EVERY: u32 = 100;

/// Accepts connections on one core.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    /// Cancelled when the service shuts down. Each core has a token of its own, so that
    /// the cores do not contend for one.
    pub(crate) closing: CancellationToken,
    tasks: TaskTracker,
    /// The connections that each listener may still have.
    permits: [Arc<Semaphore>; Listener::ALL.len()],
    /// The descriptors of each listener.
    descriptors: [DescriptorShare; Listener::ALL.len()],
}

impl Acceptor {
    /// Returns one acceptor for each core; `closing` closes them all. `max_connections`
    /// is the bound of a listener over all cores.
    pub(crate) fn for_cores(
        cores: usize,
        closing: &CancellationToken,
        descriptors: [DescriptorShare; Listener::ALL.len()],
        max_connections: impl Fn(Listener) -> usize,
    ) -> Vec<Self> {
        let permits = |listener| max_connections(listener).min(Semaphore::MAX_PERMITS);
        let permits = Listener::ALL.map(|listener| Arc::new(Semaphore::new(permits(listener))));
        let acceptor = |_| Self {
            closing: closing.child_token(),
            tasks: TaskTracker::new(),
            permits: permits.clone(),
            descriptors: descriptors.clone(),
        };
        (0..cores).map(acceptor).collect()
    }

    /// Accepts connections of a listener until the service shuts down, and spawns
    /// `serve` for each.
    pub(crate) fn spawn<F>(
        &self,
        listener: Listener,
        socket: TcpListener,
        serve: impl Fn(TcpStream, SocketAddr) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks
            .spawn(self.clone().accept(listener, socket, serve));
    }

    async fn accept<F>(
        self,
        listener: Listener,
        socket: TcpListener,
        serve: impl Fn(TcpStream, SocketAddr) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let permits = &self.permits[listener as usize];
        let descriptors = &self.descriptors[listener as usize];
        let mut failures = 0;
        let mut has_polled = false;
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = socket.accept() => accepted,
                () = self.closing.cancelled() => {
                    // Connections that are established already are served. After a
                    // yield the runtime has polled the socket for them.
                    if has_polled {
                        break;
                    }
                    has_polled = true;
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            match accepted {
                Ok((stream, peer)) => {
                    failures = 0;
                    has_polled = false;
                    // Permits are taken after the accept: one that is held in advance
                    // would be missing on another core.
                    let permit = tokio::select! {
                        biased;
                        permit = async {
                            let permit = Arc::clone(permits).acquire_owned().await;
                            (permit, descriptors.acquire().await)
                        } => permit,
                        () = self.closing.cancelled() => break,
                    };
                    // Responses are small. Without the option they are only delayed.
                    let _ = stream.set_nodelay(true);
                    // An `async` block would hold the future twice: before and while it runs.
                    let served = serve(stream, peer).map(move |()| drop(permit));
                    self.tasks.spawn(served);
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    if failures % LOG_EVERY == 0 {
                        let listener = listener.name();
                        tracing::warn!(listener, %error, "cannot accept connections");
                    }
                    failures += 1;
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Waits until all connections have ended.
    pub(crate) async fn wait(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Whether an accept failed because its client has gone away.
fn concerns_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}
