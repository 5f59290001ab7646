//! A FluxGate service that is asked, as a handler.

mod answer;
mod asking;
mod connections;
mod question;
mod ruling;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fluxgate_core::Limiter;
use http::{HeaderValue, Uri};

pub use asking::RemoteCharge;
use connections::Connections;
pub use ruling::RemoteReport;

const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// Asks a FluxGate service over HTTP.
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
/// Connections are kept and used again; a question whose answer is lost is not
/// asked again. Where no answer comes in time, requests pass, unless something
/// else is said. Windows and logs, which cannot reserve, refuse at once here: how
/// long a rule lets wait is not in the service's answer.
#[derive(Clone, Debug)]
pub struct RemoteHandler {
    settings: Arc<Settings>,
    connections: Arc<Connections>,
    /// Whether the last question had no answer.
    trouble: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
struct Settings {
    deadline: Duration,
    on_error: OnError,
    /// What `Authorization` says.
    token: Option<HeaderValue>,
    /// The headers that are sent; those that any rule may ask about if none are
    /// named.
    headers: Option<Box<[Box<str>]>>,
}

/// What is decided when there is no answer.
#[derive(Clone, Debug)]
enum OnError {
    Allow,
    Deny,
    Local(Arc<Limiter>),
}

/// Why a service cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// It is not named by an address such as `http://127.0.0.1:8081`.
    #[error("`{0}` is no address of a service, such as http://127.0.0.1:8081")]
    Address(String),
    /// A token holds what no header can.
    #[error("the token cannot be sent in a header")]
    Token,
}

impl RemoteHandler {
    /// Asks the service at this address, such as `http://127.0.0.1:8081`.
    pub fn new(address: &str) -> Result<Self, RemoteError> {
        let bad = || RemoteError::Address(address.to_owned());
        let uri: Uri = address.parse().map_err(|_| bad())?;
        Ok(Self {
            connections: Arc::new(Connections::to(&uri).ok_or_else(bad)?),
            trouble: Arc::default(),
            settings: Arc::new(Settings {
                deadline: DEFAULT_DEADLINE,
                on_error: OnError::Allow,
                token: None,
                headers: None,
            }),
        })
    }

    /// How long an answer may take; 50 ms if nothing is said.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings_mut().deadline = deadline;
        self
    }

    /// Without an answer, requests pass. This is so if nothing is said.
    pub fn allow_on_error(mut self) -> Self {
        self.settings_mut().on_error = OnError::Allow;
        self
    }

    /// Without an answer, requests are refused, to come back after a second.
    pub fn deny_on_error(mut self) -> Self {
        self.settings_mut().on_error = OnError::Deny;
        self
    }

    /// Without an answer, this limiter decides.
    pub fn local_on_error(mut self, limiter: impl Into<Arc<Limiter>>) -> Self {
        self.settings_mut().on_error = OnError::Local(limiter.into());
        self
    }

    /// Gives units back, which the service lets operators do, under this token.
    pub fn token(mut self, token: &str) -> Result<Self, RemoteError> {
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| RemoteError::Token)?;
        value.set_sensitive(true);
        self.settings_mut().token = Some(value);
        Ok(self)
    }

    /// Sends these headers of a request only. If nothing is said, all are sent
    /// but `Authorization`, cookies and those of the connection.
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
