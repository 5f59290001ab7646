//! An upstream that shows exactly what it gets.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// A server on loopback, which ends when it is dropped.
pub(crate) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    streams: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
    answer: Box<Answering>,
}

type Answering = dyn Fn(&Seen, &mut TcpStream) -> bool + Send + Sync;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The first line and the headers, each with its line end.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether all of the body came.
    pub(crate) whole: bool,
}

impl Seen {
    /// The values of the headers of this name, which is in lower case.
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        let lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'));
        let named = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim()).collect()
    }

    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }
}

impl Upstream {
    /// Says 200 to everything, with this body.
    pub(crate) fn saying(body: &'static str) -> Self {
        Self::start(move |_, stream| {
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .is_ok()
        })
    }

    /// Answers by writing; `false` ends the connection.
    pub(crate) fn start(
        answer: impl Fn(&Seen, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    /// The same, where somebody listens already.
    pub(crate) fn listening(
        listener: TcpListener,
        answer: impl Fn(&Seen, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
            streams: Mutex::default(),
            ended: AtomicBool::new(false),
            answer: Box::new(answer),
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

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// The one request that there was.
    #[track_caller]
    pub(crate) fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:#?}");
        seen[0].clone()
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Closes all connections, as a server does that has had enough.
    pub(crate) fn close_connections(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Whoever waits for a connection gets one.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.close_connections();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.ended.load(Ordering::Relaxed) {
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
        thread::spawn(move || serve(stream, &shared));
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Ok(Some(seen)) = read(&mut reader) {
        let whole = seen.whole;
        shared.seen.lock().unwrap().push(seen.clone());
        if !whole || !(shared.answer)(&seen, &mut stream) {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// The next request; `None` at the end.
fn read(reader: &mut impl BufRead) -> io::Result<Option<Seen>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let mut seen = Seen {
        head,
        body: Vec::new(),
        whole: true,
    };
    let is_chunked = seen.header("transfer-encoding") == ["chunked"];
    let length = seen
        .header("content-length")
        .first()
        .map(|it| it.parse::<u64>().unwrap());
    let mut body = Vec::new();
    seen.whole = match (is_chunked, length) {
        (true, _) => read_chunks(reader, &mut body).is_ok(),
        (false, Some(length)) => {
            reader.take(length).read_to_end(&mut body)?;
            body.len() as u64 == length
        }
        (false, None) => true,
    };
    seen.body = body;
    Ok(Some(seen))
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
