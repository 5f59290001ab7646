//! A receiver of webhooks, which can fail.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use fluxgate_testkit::wait_for;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

pub(super) const SECRET: &str = "hush";

/// What a receiver does with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A status and no body.
    Status(u16),
    /// 200, after a while.
    Late(Duration),
    /// A redirect to itself, which must not be followed.
    Redirect,
    /// 200 with a body without end.
    Endless,
}

/// A receiver of webhooks.
pub(super) struct Receiver {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    answer: Mutex<Answer>,
    /// The events that were accepted, in order.
    accepted: Mutex<Vec<Value>>,
    /// How many attempts there were.
    attempts: Mutex<u64>,
    is_over: AtomicBool,
}

impl Receiver {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let state = Arc::new(State {
            answer: Mutex::new(Answer::Status(204)),
            accepted: Mutex::default(),
            attempts: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let address = listener.local_addr().unwrap();
        let thread = Some(serve(listener, Arc::clone(&state)));
        Self {
            address,
            state,
            thread,
        }
    }

    /// Returns the config of a webhook for it, with the file of its secret.
    pub(super) fn config(&self, kinds: &str) -> String {
        let url = self.url();
        format!("webhooks: [ {{ url: \"{url}\", secret_file: secret, kinds: {kinds} }} ]\n")
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/hook?token=1", self.address)
    }

    pub(super) fn answer(&self, answer: Answer) {
        *self.state.answer.lock().unwrap() = answer;
    }

    /// Stops listening: connections are refused.
    pub(super) fn stop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Listens again on the same address.
    pub(super) fn restart(&mut self) {
        let listener = wait_for("the address", || TcpListener::bind(self.address).ok());
        self.state.is_over.store(false, Ordering::Relaxed);
        self.thread = Some(serve(listener, Arc::clone(&self.state)));
    }

    pub(super) fn attempts(&self) -> u64 {
        *self.state.attempts.lock().unwrap()
    }

    /// Returns the accepted events.
    pub(super) fn accepted(&self) -> Vec<Value> {
        self.state.accepted.lock().unwrap().clone()
    }

    /// Waits for so many events that differ, and returns all that were accepted.
    #[track_caller]
    pub(super) fn wait_for(&self, count: usize) -> Vec<Value> {
        wait_for(&format!("{count} events"), || {
            let accepted = self.accepted();
            (in_order(&accepted).len() >= count).then_some(accepted)
        })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
        }
    }
}

/// Returns the identities of events, each where it arrived first.
pub(super) fn in_order(events: &[Value]) -> Vec<String> {
    let mut seen = Vec::new();
    for event in events {
        let name = format!("{} {}", event["identity"], event["share"]);
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

fn serve(listener: TcpListener, state: Arc<State>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if state.is_over.load(Ordering::Relaxed) {
                return;
            }
            let state = Arc::clone(&state);
            // A client that goes away is not a fault of the test.
            std::thread::spawn(move || stream.and_then(|stream| receive(stream, &state)).ok());
        }
    })
}

fn receive(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    let (head, body) = loop {
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&part[..count]);
        let text = String::from_utf8(bytes.clone()).unwrap();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = header(head, "content-length").unwrap();
            if body.len() == length.parse::<usize>().unwrap() {
                break (head.to_owned(), body.to_owned());
            }
        }
    };
    *state.attempts.lock().unwrap() += 1;
    assert!(
        head.starts_with("POST /hook?token=1 HTTP/1.1\r\n"),
        "{head}"
    );
    assert_eq!(
        header(&head, "content-type").as_deref(),
        Some("application/json")
    );
    let answer = *state.answer.lock().unwrap();
    let status = match answer {
        Answer::Status(status) => status,
        Answer::Late(wait) => {
            std::thread::sleep(wait);
            200
        }
        Answer::Redirect => 307,
        Answer::Endless => 200,
    };
    if status < 300 {
        check_signature(&head, &body);
        let event = serde_json::from_str(&body).unwrap();
        state.accepted.lock().unwrap().push(event);
    }
    let more = match answer {
        Answer::Redirect => "Location: /hook?token=1\r\nContent-Length: 0\r\n",
        Answer::Endless => "Transfer-Encoding: chunked\r\n",
        _ => "Content-Length: 0\r\n",
    };
    stream.write_all(format!("HTTP/1.1 {status} X\r\n{more}\r\n").as_bytes())?;
    if answer != Answer::Endless {
        return Ok(());
    }
    loop {
        stream.write_all(format!("400\r\n{}\r\n", "x".repeat(1024)).as_bytes())?;
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
    Some(values.next()?.1.trim().to_owned())
}

/// Checks the signature as a receiver would.
fn check_signature(head: &str, body: &str) {
    let signature = header(head, "X-FluxGate-Signature").unwrap();
    let (time, digits) = signature.split_once(",v1=").unwrap();
    let time = time.strip_prefix("t=").unwrap();
    let now = crate::support::unix_time().as_secs();
    assert!(now.abs_diff(time.parse().unwrap()) < 60, "{signature}");
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(format!("{time}.{body}").as_bytes());
    let bytes = mac.finalize().into_bytes();
    let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, expected);
}
