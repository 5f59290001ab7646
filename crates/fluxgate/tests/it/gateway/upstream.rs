//! An upstream that records its requests as received.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// A server on loopback. It stops when dropped.
pub(crate) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    requests: Mutex<Vec<ReceivedRequest>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    streams: Mutex<Vec<TcpStream>>,
    is_stopped: AtomicBool,
    respond: Box<Respond>,
}

type Respond = dyn Fn(&ReceivedRequest, &mut TcpStream) -> bool + Send + Sync;

/// A request as received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// The request line and the headers, each with its line end.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the whole body was received.
    pub(crate) is_complete: bool,
}

impl ReceivedRequest {
    /// Returns the values of the headers with this name.
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        let lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'));
        let named = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim()).collect()
    }

    pub(crate) fn request_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }
}

impl Upstream {
    /// Starts an upstream that responds to every request with 200 and this body.
    pub(crate) fn with_body(body: &'static str) -> Self {
        Self::start(move |_, stream| {
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .is_ok()
        })
    }

    /// Starts an upstream that responds by `respond`, which writes to the stream and
    /// returns whether the connection stays open.
    pub(crate) fn start(
        respond: impl Fn(&ReceivedRequest, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::start_on(TcpListener::bind("127.0.0.1:0").unwrap(), respond)
    }

    /// Starts an upstream on an existing listener.
    pub(crate) fn start_on(
        listener: TcpListener,
        respond: impl Fn(&ReceivedRequest, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            streams: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            respond: Box::new(respond),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&listener, &shared))
        };
        Self {
            address,
            shared,
            accepting: Some(accepting),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all requests so far.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Returns the only request, and panics if there are none or several.
    #[track_caller]
    pub(crate) fn only_request(&self) -> ReceivedRequest {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:#?}");
        requests[0].clone()
    }

    /// Returns the number of connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of open connections.
    pub(crate) fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Closes all connections, as servers do with idle ones.
    pub(crate) fn close_connections(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.close_connections();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.is_stopped.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { return };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        shared
            .streams
            .lock()
            .unwrap()
            .push(stream.try_clone().unwrap());
        let shared = Arc::clone(shared);
        shared.open.fetch_add(1, Ordering::Relaxed);
        thread::spawn(move || {
            serve(stream, &shared);
            shared.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Ok(Some(request)) = read(&mut reader) {
        let is_complete = request.is_complete;
        shared.requests.lock().unwrap().push(request.clone());
        if !is_complete || !(shared.respond)(&request, &mut stream) {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Reads the next request; returns `None` at the end of the connection.
fn read(reader: &mut impl BufRead) -> io::Result<Option<ReceivedRequest>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let mut request = ReceivedRequest {
        head,
        body: Vec::new(),
        is_complete: true,
    };
    let is_chunked = request.header("transfer-encoding") == ["chunked"];
    let length = request
        .header("content-length")
        .first()
        .map(|it| it.parse::<u64>().unwrap());
    let mut body = Vec::new();
    request.is_complete = match (is_chunked, length) {
        (true, _) => read_chunks(reader, &mut body).is_ok(),
        (false, Some(length)) => {
            reader.take(length).read_to_end(&mut body)?;
            body.len() as u64 == length
        }
        (false, None) => true,
    };
    request.body = body;
    Ok(Some(request))
}

fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim_end(), 16);
        let size = size.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let before = body.len() as u64;
        reader.take(size).read_to_end(body)?;
        let mut end = [0; 2];
        reader.read_exact(&mut end)?;
        if body.len() as u64 != before + size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if size == 0 {
            return Ok(());
        }
    }
}
