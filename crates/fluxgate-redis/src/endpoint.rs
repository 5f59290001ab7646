//! The address of a server, the login, and how to connect.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_core::StoreError;
use futures_core::Stream;
use redis::aio::{MultiplexedConnection, PubSub, PubSubSink, PubSubStream, SendError};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError, TlsCertificates,
};
use tokio::time::timeout;

use crate::error::{Address, error, no_answer, store_error};

/// How long connecting and logging in may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// The credentials for a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) tls: Tls,
}

/// Certificates, in PEM.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    /// The authority to trust instead of those of the system.
    pub(crate) ca: Option<Vec<u8>>,
    /// The client's certificate and key.
    pub(crate) client: Option<(Vec<u8>, Secret)>,
}

/// Bytes that must not be logged.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// The address of a server, and the login.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint(ConnectionInfo);

impl Endpoint {
    /// Parses a URL. The login overrides that of the URL.
    pub(crate) fn new(url: &str, login: &Login) -> Result<Self, RedisError> {
        let mut info = match url.strip_prefix("unix://") {
            // The client library needs the long form.
            Some(path) => format!("redis+unix://{path}").into_connection_info()?,
            None => url.into_connection_info()?,
        };
        let mut settings = info.redis_settings().clone();
        if let Some(username) = &login.username {
            settings = settings.set_username(username);
        }
        if let Some(Secret(password)) = &login.password {
            settings = settings.set_password(String::from_utf8_lossy(password));
        }
        let tcp = TcpSettings::default().set_nodelay(true);
        info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            let client_tls = login.tls.client.clone();
            let certificates = TlsCertificates {
                client_tls: client_tls.map(|(client_cert, Secret(client_key))| ClientTlsConfig {
                    client_cert,
                    client_key,
                }),
                root_cert: login.tls.ca.clone(),
            };
            let client = Client::build_with_tls(info, certificates)?;
            info = client.get_connection_info().clone();
        }
        Ok(Self(info))
    }

    /// Returns another server of the same deployment, with the same login.
    pub(crate) fn with_address(&self, (host, port): Address) -> Self {
        let addr = match self.0.addr() {
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        Self(self.0.clone().set_addr(addr))
    }

    /// Returns the host, if there is one.
    pub(crate) fn host(&self) -> Option<&str> {
        match self.0.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host),
            _ => None,
        }
    }

    /// Returns the address for error messages, without user and password.
    pub(crate) fn name(&self) -> String {
        self.0.addr().to_string()
    }

    /// Connects and logs in, with RESP3 if the server supports it.
    pub(crate) async fn connect(&self) -> Result<ServerConnection, StoreError> {
        match self.connect_with(ProtocolVersion::RESP3).await {
            Err(cause) if cause.kind() == ErrorKind::RESP3NotSupported => {
                self.connect_with(ProtocolVersion::RESP2).await
            }
            result => result,
        }
        .map_err(|cause| {
            let StoreError { reason, message } = store_error(&cause);
            error(
                reason,
                &format!("cannot connect to {}: {message}", self.name()),
            )
        })
    }

    /// Opens a connection for subscriptions.
    pub(crate) async fn pubsub(&self) -> Result<PubSub, StoreError> {
        // RESP2, which every server speaks, is enough.
        let settings = self
            .0
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP2);
        #[cfg(feature = "simulation")]
        if let Some(stream) = self.simulated_stream() {
            let pubsub = match stream {
                Ok(stream) => PubSub::new(&settings, stream).await,
                Err(cause) => Err(cause),
            };
            return pubsub.map_err(|cause| store_error(&cause));
        }
        let pubsub = match Client::open(self.0.clone().set_redis_settings(settings)) {
            Ok(client) => client.get_async_pubsub().await,
            Err(cause) => Err(cause),
        };
        pubsub.map_err(|cause| store_error(&cause))
    }

    /// Connects to a simulated server, if this thread simulates.
    #[cfg(feature = "simulation")]
    fn simulated_stream(&self) -> Option<Result<Box<dyn crate::simulation::Stream>, RedisError>> {
        let ConnectionAddr::Tcp(host, port) = self.0.addr() else {
            return None;
        };
        let stream = crate::simulation::connect(host, *port)?;
        Some(stream.map_err(RedisError::from))
    }

    async fn connect_with(
        &self,
        protocol: ProtocolVersion,
    ) -> Result<ServerConnection, RedisError> {
        let settings = self.0.redis_settings().clone().set_protocol(protocol);
        let client = Client::open(self.0.clone().set_redis_settings(settings.clone()))?;
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            // Each call has its own deadline.
            .set_response_timeout(None);
        let closed = Arc::new(AtomicBool::new(false));
        if protocol == ProtocolVersion::RESP3 {
            let closed = Arc::clone(&closed);
            config = config.set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    closed.store(true, Ordering::Release);
                }
                Ok::<(), SendError>(())
            });
        }
        #[cfg(feature = "simulation")]
        if let Some(stream) = self.simulated_stream() {
            let connecting = MultiplexedConnection::new_with_config(&settings, stream?, config);
            let timed_out = |_| RedisError::from((ErrorKind::Io, "the connection timed out"));
            let connected = timeout(CONNECT_TIMEOUT, connecting).await;
            let (commands, driver) = connected.map_err(timed_out)??;
            tokio::spawn(driver);
            return Ok(ServerConnection { commands, closed });
        }
        let commands = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok(ServerConnection { commands, closed })
    }
}

/// A connection to a server. Clones are the same connection.
#[derive(Clone, Debug)]
pub(crate) struct ServerConnection {
    pub(crate) commands: MultiplexedConnection,
    closed: Arc<AtomicBool>,
}

impl ServerConnection {
    /// Returns whether it is known to be closed before a command fails. With RESP2 that is never
    /// known.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// The time without a message after which the server is pinged.
const PING_AFTER: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// A subscription to some channels of one server.
pub(crate) struct Subscription {
    sink: PubSubSink,
    messages: PubSubStream,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

impl Subscription {
    pub(crate) async fn open(endpoint: &Endpoint, channels: &[&str]) -> Result<Self, StoreError> {
        let subscribed = async {
            let (mut sink, messages) = endpoint.pubsub().await?.split();
            let done = sink.subscribe(channels).await;
            done.map_err(|cause| store_error(&cause))?;
            Ok(Self { sink, messages })
        };
        match timeout(2 * CONNECT_TIMEOUT, subscribed).await {
            Ok(subscription) => subscription,
            Err(_) => Err(no_answer(&endpoint.name())),
        }
    }

    /// Subscribes to one more channel.
    pub(crate) async fn add(&mut self, channel: &str) -> Result<(), StoreError> {
        let done = self.sink.subscribe(channel).await;
        done.map_err(|cause| store_error(&cause))
    }

    /// Waits for the next message; `None` if the connection is lost.
    pub(crate) async fn next(&mut self) -> Option<()> {
        loop {
            let messages = &mut self.messages;
            let next = std::future::poll_fn(|cx| Pin::new(&mut *messages).poll_next(cx));
            if let Ok(message) = timeout(PING_AFTER, next).await {
                return message.map(drop);
            }
            let alive = timeout(PING_TIMEOUT, self.sink.ping::<redis::Value>()).await;
            if !matches!(alive, Ok(Ok(_))) {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call is one small packet, which must not wait for the next one.
    #[test]
    fn every_server_of_a_deployment_is_reached_with_nodelay() {
        for url in ["redis://somewhere:1", "rediss://somewhere:1"] {
            let first = Endpoint::new(url, &Login::default()).unwrap();
            let other = first.with_address(("elsewhere".to_owned(), 2));
            for Endpoint(info) in [first, other] {
                assert!(info.tcp_settings().nodelay(), "{url}");
            }
        }
    }
}
