//! A remote FluxGate service as a handler.

mod handler;
mod holds;
mod pool;
mod report;
mod request;
#[cfg(feature = "remote-tls")]
mod tls;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fluxgate_core::Limiter;
use fluxgate_core::renewal::HoldRenewals;
use http::Uri;
use http::uri::Scheme;

pub use handler::{RemoteCharge, RemoteRules};
pub use report::RemoteReport;

use pool::ConnectionPool;
use tokio::sync::Semaphore;

const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);
/// How many answers to wait for that no request waits for. Each occupies a connection, and a
/// service that hangs must not make the client open more and more of them.
const MAX_LATE_ANSWERS: usize = 64;

/// Lets a FluxGate service decide, over HTTP.
///
/// ```
/// use fluxgate_tower::{RateLimitLayer, RemoteHandler};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let handler = RemoteHandler::new("http://127.0.0.1:8081")?.deny_on_error();
/// let layer = RateLimitLayer::with_handler(handler).rule_set("api-limits");
/// # Ok(())
/// # }
/// ```
///
/// Connections are pooled. A call whose response is lost is not repeated, as the service may
/// have charged it. If the service does not respond in time, requests pass by default. Windows
/// and logs, which cannot reserve, deny at once: the service's response does not say how long
/// their rules let a request wait. Slots are held until the response ends, as by a
/// limiter in the process; one call renews all of them. If a request is abandoned, or misses its
/// deadline, its reservation is cancelled or its hold released when the answer arrives.
#[derive(Clone, Debug)]
pub struct RemoteHandler {
    settings: Arc<Settings>,
    pool: Arc<ConnectionPool>,
    /// The holds of requests that are still running.
    kept: Arc<HoldRenewals>,
    /// Whether the last call failed.
    is_failing: Arc<AtomicBool>,
    /// The permits to wait for answers that no request waits for.
    late_answers: Arc<Semaphore>,
}

#[derive(Clone, Debug)]
struct Settings {
    deadline: Duration,
    on_error: OnError,
    /// The headers to send, or `None` for all that rules may read.
    headers: Option<Arc<[Box<str>]>>,
    #[cfg(feature = "remote-tls")]
    tls: tls::TlsOptions,
}

/// How to decide if the service fails.
#[derive(Clone, Debug)]
enum OnError {
    Allow,
    Deny,
    Local(Limiter),
}

/// Why a service cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The address is not one such as `http://127.0.0.1:8081`.
    #[error("`{0}` is not the address of a service, such as http://127.0.0.1:8081")]
    Address(String),
    /// The address begins with `https`, and the feature `remote-tls` is off.
    #[error("`{0}` needs the feature `remote-tls` of fluxgate-tower")]
    NoTls(String),
    /// The certificates cannot be used.
    #[cfg(feature = "remote-tls")]
    #[error(transparent)]
    Trust(#[from] fluxgate_http::TrustError),
}

impl RemoteHandler {
    /// Creates a handler for the service at this address, such as `http://127.0.0.1:8081`. An
    /// `https` address needs the feature `remote-tls`; the certificate authorities of the system
    /// are trusted, or those of the file that `SSL_CERT_FILE` names.
    pub fn new(address: &str) -> Result<Self, RemoteError> {
        let bad = || RemoteError::Address(address.to_owned());
        let uri: Uri = address.parse().map_err(|_| bad())?;
        if cfg!(not(feature = "remote-tls")) && uri.scheme() == Some(&Scheme::HTTPS) {
            return Err(RemoteError::NoTls(address.to_owned()));
        }
        Ok(Self {
            pool: Arc::new(ConnectionPool::new(&uri).ok_or_else(bad)?),
            kept: Arc::default(),
            is_failing: Arc::default(),
            late_answers: Arc::new(Semaphore::new(MAX_LATE_ANSWERS)),
            settings: Arc::new(Settings {
                deadline: DEFAULT_DEADLINE,
                on_error: OnError::Allow,
                headers: None,
                #[cfg(feature = "remote-tls")]
                tls: tls::TlsOptions::default(),
            }),
        })
    }

    /// Sets the certificate authority (PEM) to trust instead of those of the system, for an
    /// `https` address.
    ///
    /// # Errors
    /// If it is not a certificate in PEM.
    #[cfg(feature = "remote-tls")]
    pub fn tls_ca(mut self, pem: &[u8]) -> Result<Self, RemoteError> {
        self.settings_mut().tls.ca = Some(pem.into());
        self.with_tls()
    }

    /// Sets the client certificate and its key (both PEM), for an `https` address.
    ///
    /// # Errors
    /// If they are not a certificate and its key in PEM.
    #[cfg(feature = "remote-tls")]
    pub fn tls_client(mut self, certificate: &[u8], key: &[u8]) -> Result<Self, RemoteError> {
        self.settings_mut().tls.client = Some((certificate.into(), key.into()));
        self.with_tls()
    }

    /// Sets how long the service may take to respond; 50 ms by default. It includes the time to
    /// connect, if no connection is idle.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings_mut().deadline = deadline;
        self
    }

    /// Allows requests while the service fails. This is the default.
    pub fn allow_on_error(mut self) -> Self {
        self.settings_mut().on_error = OnError::Allow;
        self
    }

    /// Denies requests while the service fails, with a retry after one second.
    pub fn deny_on_error(mut self) -> Self {
        self.settings_mut().on_error = OnError::Deny;
        self
    }

    /// Lets this limiter decide while the service fails.
    pub fn local_on_error(mut self, limiter: Limiter) -> Self {
        self.settings_mut().on_error = OnError::Local(limiter);
        self
    }

    /// Sends these headers of a request only: name those that the rules of the service read. A
    /// request that repeats one of them with different values is rejected with 400.
    ///
    /// By default all are sent except `Authorization`, cookies and hop-by-hop headers. Any of them
    /// may then count, so a request that repeats any header with different values is rejected,
    /// unless the header is a list such as `Accept` or `Via`, and a header whose name servers may
    /// take for another (`x_tenant`) does not reach the inner service.
    pub fn headers(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let names = names.into_iter();
        let names = names.map(|name| name.as_ref().to_ascii_lowercase().into());
        self.settings_mut().headers = Some(names.collect());
        self
    }

    /// Connects with the certificates that are set.
    #[cfg(feature = "remote-tls")]
    fn with_tls(mut self) -> Result<Self, RemoteError> {
        let tls = tls::Tls::new(&self.settings.tls)?;
        self.pool = Arc::new(self.pool.with_tls(tls));
        Ok(self)
    }

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }
}
