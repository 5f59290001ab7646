//! Peers of the gateway that speak HTTP/2: an upstream and a client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_testkit::{Certificates, WAIT_TIMEOUT, WireRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A server on loopback that records its requests. It stops when dropped.
pub(crate) struct Http2Upstream {
    address: SocketAddr,
    is_secure: bool,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<WireRequest>>,
    /// Requests that the client has cancelled, with the reasons.
    cancelled: Mutex<Vec<Option<Reason>>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    streams: AtomicUsize,
    drains: Notify,
}

/// What a server is like.
#[derive(Clone, Default)]
pub(crate) struct Settings<'a> {
    /// How many streams a connection may have.
    pub(crate) max_streams: Option<u32>,
    /// The certificate, if it uses TLS.
    pub(crate) tls: Option<&'a Certificates>,
    /// The window of a stream, if it is not the default.
    pub(crate) window: Option<u32>,
}

/// A request, to be read and answered.
pub(crate) struct Call {
    pub(crate) request: Request<RecvStream>,
    pub(crate) respond: SendResponse<Bytes>,
    shared: Arc<Shared>,
}

impl Http2Upstream {
    /// Starts a server that answers every request with 200 and `ok`.
    pub(crate) fn start() -> Self {
        Self::serving(Settings::default(), |mut call| async move {
            if let Ok(request) = call.read().await {
                let body = if request.method == "HEAD" { "" } else { "ok" };
                call.answer(200, &[("content-length", "2")], body);
            }
        })
    }

    /// Starts a server that handles every request in this way.
    pub(crate) fn serving<F, R>(settings: Settings<'_>, handle: F) -> Self
    where
        F: Fn(Call) -> R + Clone + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let acceptor = settings.tls.map(acceptor);
        let (max_streams, window) = (settings.max_streams, settings.window);
        let (stop, stopped) = oneshot::channel();
        let serving = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                block_on(async move {
                    let accepting = async {
                        let listener = TcpListener::from_std(listener).unwrap();
                        loop {
                            let Ok((tcp, _)) = listener.accept().await else {
                                continue;
                            };
                            tcp.set_nodelay(true).unwrap();
                            let (shared, handle) = (Arc::clone(&shared), handle.clone());
                            let acceptor = acceptor.clone();
                            let mut builder = h2::server::Builder::new();
                            if let Some(max) = max_streams {
                                builder.max_concurrent_streams(max);
                            }
                            if let Some(window) = window {
                                builder.initial_window_size(window);
                            }
                            tokio::spawn(async move {
                                match acceptor {
                                    None => serve(tcp, builder, shared, handle).await,
                                    Some(acceptor) => {
                                        if let Ok(tls) = acceptor.accept(tcp).await {
                                            serve(tls, builder, shared, handle).await;
                                        }
                                    }
                                }
                            });
                        }
                    };
                    tokio::select! {
                        () = accepting => {}
                        _ = stopped => {}
                    }
                });
            })
        };
        Self {
            address,
            is_secure: settings.tls.is_some(),
            shared,
            stop: Some(stop),
            serving: Some(serving),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        if self.is_secure {
            format!("https://localhost:{}", self.address.port())
        } else {
            format!("h2c://{}", self.address)
        }
    }

    /// Returns the complete requests so far.
    pub(crate) fn requests(&self) -> Vec<WireRequest> {
        lock(&self.shared.requests).clone()
    }

    /// Returns the requests that were cancelled so far, with the reasons.
    pub(crate) fn cancelled(&self) -> Vec<Option<Reason>> {
        lock(&self.shared.cancelled).clone()
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections.
    pub(crate) fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Returns the number of streams so far, complete or not.
    pub(crate) fn streams(&self) -> usize {
        self.shared.streams.load(Ordering::SeqCst)
    }

    /// Ends all connections by `GOAWAY`, as a server does that restarts.
    pub(crate) fn drain(&self) {
        self.shared.drains.notify_waiters();
    }
}

impl Drop for Http2Upstream {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

async fn serve<T, F, R>(stream: T, builder: h2::server::Builder, shared: Arc<Shared>, handle: F)
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Call) -> R,
    R: Future<Output = ()> + Send + 'static,
{
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else {
        return;
    };
    shared.connections.fetch_add(1, Ordering::SeqCst);
    shared.open.fetch_add(1, Ordering::SeqCst);
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            () = shared.drains.notified() => {
                connection.graceful_shutdown();
                continue;
            }
        };
        let Some(Ok((request, respond))) = accepted else {
            break;
        };
        shared.streams.fetch_add(1, Ordering::SeqCst);
        let call = Call {
            request,
            respond,
            shared: Arc::clone(&shared),
        };
        tokio::spawn(handle(call));
    }
    shared.open.fetch_sub(1, Ordering::SeqCst);
}

impl Call {
    pub(crate) fn path(&self) -> &str {
        self.request.uri().path()
    }

    /// Reads and records the request.
    pub(crate) async fn read(&mut self) -> Result<WireRequest, h2::Error> {
        let mut body = Vec::new();
        let incoming = self.request.body_mut();
        while let Some(data) = incoming.data().await {
            let data = data.inspect_err(|error| note(&self.shared, error))?;
            let _ = incoming.flow_control().release_capacity(data.len());
            body.extend_from_slice(&data);
        }
        let trailers = incoming.trailers().await?.unwrap_or_default();
        let uri = self.request.uri();
        let mut headers = lines(self.request.headers());
        let authority = uri.authority().map(ToString::to_string);
        headers.extend(authority.map(|host| ("host".to_owned(), host)));
        let request = WireRequest {
            method: self.request.method().to_string(),
            // As over HTTP/1.1: a character for each byte.
            target: uri
                .path_and_query()
                .unwrap()
                .as_str()
                .bytes()
                .map(char::from)
                .collect(),
            version: "HTTP/2".to_owned(),
            headers,
            body,
            trailers: lines(&trailers),
        };
        lock(&self.shared.requests).push(request.clone());
        Ok(request)
    }

    /// Answers with these headers and this body.
    pub(crate) fn answer(&mut self, status: u16, headers: &[(&str, &str)], body: &'static str) {
        let mut stream = self.begin(status, headers, body.is_empty());
        if !body.is_empty() {
            // The client may have left.
            let _ = stream.send_data(Bytes::from_static(body.as_bytes()), true);
        }
    }

    /// Begins an answer.
    pub(crate) fn begin(
        &mut self,
        status: u16,
        headers: &[(&str, &str)],
        is_end: bool,
    ) -> SendStream<Bytes> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let response = response.body(()).unwrap();
        self.respond.send_response(response, is_end).unwrap()
    }

    /// Waits until the client cancels the request, which has no answer yet.
    pub(crate) async fn wait_for_cancellation(&mut self) {
        let reason = std::future::poll_fn(|cx| self.respond.poll_reset(cx)).await;
        lock(&self.shared.cancelled).push(reason.ok());
    }

    /// Waits until the client cancels the request, whose answer has begun.
    pub(crate) async fn wait_for_reset(&self, stream: &mut SendStream<Bytes>) {
        let reason = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
        lock(&self.shared.cancelled).push(reason.ok());
    }
}

fn note(shared: &Shared, error: &h2::Error) {
    lock(&shared.cancelled).push(error.reason());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// Returns headers with values as text, in which each byte is a character.
fn lines(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &[u8]| value.iter().copied().map(char::from).collect();
    let lines = headers.iter();
    lines
        .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
        .collect()
}

fn acceptor(certificates: &Certificates) -> TlsAcceptor {
    let [chain, key] =
        [certificates.server_cert(), certificates.server_key()].map(Certificates::read);
    let chain = CertificateDer::pem_slice_iter(&chain).map(Result::unwrap);
    let key = PrivateKeyDer::from_pem_slice(&key).unwrap();
    let provider = tokio_rustls::rustls::crypto::ring::default_provider();
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let mut config = config.with_single_cert(chain.collect(), key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A client with one connection.
pub(crate) struct Http2Client {
    sender: h2::client::SendRequest<Bytes>,
}

/// A response that has been read to its end.
#[derive(Debug)]
pub(crate) struct Http2Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: HeaderMap,
}

impl Http2Answer {
    /// Returns a header or trailer.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name).or(self.trailers.get(name))?;
        value.to_str().ok()
    }
}

impl Http2Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::with_window(address, 65_535).await
    }

    /// Connects; the server may send so much of each response ahead.
    pub(crate) async fn with_window(address: SocketAddr, window: u32) -> Self {
        let tcp = TcpStream::connect(address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window);
        let (sender, connection) = builder.handshake(tcp).await.unwrap();
        tokio::spawn(connection);
        Self { sender }
    }

    /// Begins a request.
    pub(crate) async fn begin(
        &mut self,
        request: Request<()>,
        is_end: bool,
    ) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
        let mut sender = self.sender.clone().ready().await.unwrap();
        sender.send_request(request, is_end).unwrap()
    }

    /// Sends a request and reads the response, within a time that no test exceeds.
    pub(crate) async fn send(
        &mut self,
        request: Request<()>,
        body: impl Into<Bytes>,
    ) -> Result<Http2Answer, h2::Error> {
        let body = body.into();
        let (response, mut stream) = self.begin(request, body.is_empty()).await;
        if !body.is_empty() {
            stream.send_data(body, true)?;
        }
        let answer = tokio::time::timeout(WAIT_TIMEOUT, read(response)).await;
        answer.expect("a response in time")
    }
}

/// Reads a response to its end.
pub(crate) async fn read(response: h2::client::ResponseFuture) -> Result<Http2Answer, h2::Error> {
    let (parts, mut incoming) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(data) = incoming.data().await {
        let data = data?;
        incoming.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok(Http2Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body,
        trailers: incoming.trailers().await?.unwrap_or_default(),
    })
}

/// Returns a request to a path with these headers.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://a.example{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// Runs a test that needs a runtime.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test)
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(WAIT_TIMEOUT, waiting).await;
    assert!(in_time.is_ok(), "waited in vain until {what}");
}
