//! A remote FluxGate service as a handler.

pub(crate) mod handler;
mod holds;
mod pool;
pub(crate) mod report;
mod request;
mod response;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fluxgate_core::Limiter;
use fluxgate_core::internals::KeptHolds;
use http::Uri;

use pool::ConnectionPool;

const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

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
/// limiter in the process; one call renews all of them.
#[derive(Clone, Debug)]
pub struct RemoteHandler {
    settings: Arc<Settings>,
    pool: Arc<ConnectionPool>,
    /// The holds of requests that are still running.
    kept: Arc<KeptHolds>,
    /// Whether the last call failed.
    is_failing: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
struct Settings {
    deadline: Duration,
    on_error: OnError,
    /// The headers to send, or `None` for all that rules may read.
    headers: Option<Box<[Box<str>]>>,
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
}

impl RemoteHandler {
    /// Creates a handler for the service at this address, such as `http://127.0.0.1:8081`.
    pub fn new(address: &str) -> Result<Self, RemoteError> {
        let bad = || RemoteError::Address(address.to_owned());
        let uri: Uri = address.parse().map_err(|_| bad())?;
        Ok(Self {
            pool: Arc::new(ConnectionPool::new(&uri).ok_or_else(bad)?),
            kept: Arc::default(),
            is_failing: Arc::default(),
            settings: Arc::new(Settings {
                deadline: DEFAULT_DEADLINE,
                on_error: OnError::Allow,
                headers: None,
            }),
        })
    }

    /// Sets how long the service may take to respond; 50 ms by default.
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

    /// Sends these headers of a request only. By default all are sent except `Authorization`,
    /// cookies and hop-by-hop headers.
    pub fn headers(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let names = names.into_iter();
        let names = names.map(|name| name.as_ref().to_ascii_lowercase().into());
        self.settings_mut().headers = Some(names.collect());
        self
    }

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }
}
