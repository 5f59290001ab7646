//! Requests that end before the service has answered.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fluxgate_testkit::WAIT_TIMEOUT;

use super::{ALLOWED, App, GENEROUS, get, handler, ok, until};

/// A service whose first answer comes when the test wants it to.
struct SlowService {
    address: SocketAddr,
    /// Reports each request as it arrives.
    requests: mpsc::Receiver<String>,
    /// Lets the first request be answered.
    answer: mpsc::Sender<()>,
}

impl SlowService {
    fn start(first: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (report, requests) = mpsc::channel();
        let (answer, may_answer) = mpsc::channel();
        thread::spawn(move || {
            let mut answers = Some((first, may_answer));
            while let Ok((mut stream, _)) = listener.accept() {
                while let Some(request) = read_request(&mut stream) {
                    if report.send(request).is_err() {
                        return;
                    }
                    let answer = match answers.take() {
                        Some((first, may_answer)) => {
                            may_answer.recv().unwrap();
                            first
                        }
                        None => ok("{}"),
                    };
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        Self {
            address,
            requests,
            answer,
        }
    }

    /// Returns the next request.
    async fn next(&self) -> String {
        let mut request = None;
        until("a request", || {
            request = self.requests.try_recv().ok();
            request.is_some()
        })
        .await;
        request.unwrap()
    }
}

/// Returns a request with a JSON body, or `None` at the end of the connection.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let (mut request, mut part) = (Vec::new(), [0; 65_536]);
    while !request.ends_with(b"}") {
        match stream.read(&mut part).ok()? {
            0 => return None,
            read => request.extend_from_slice(&part[..read]),
        }
    }
    String::from_utf8(request).ok()
}

const ID: &str = "BCDEFGHIJKLMNOPQRSTUVWXYZE";

/// Answers that keep something at the service, and the call that gives it back.
fn answers() -> [(String, String); 2] {
    let with = |more: &str| ok(&ALLOWED.replace("\"violated\"", &format!("{more},\"violated\"")));
    let delayed = with(&format!("\"reservation\":\"{ID}\""));
    [
        (
            with(&format!("\"hold\":\"{ID}\",\"hold_ms\":60000")),
            format!("POST /v1/release HTTP/1.1 {{\"hold\":\"{ID}\"}}"),
        ),
        (
            delayed,
            format!("POST /v1/cancel HTTP/1.1 {{\"reservation\":\"{ID}\"}}"),
        ),
    ]
}

/// Returns the first line and the body of a request.
fn shown(request: &str) -> String {
    let line = request.lines().next().unwrap();
    format!("{line} {}", request.lines().last().unwrap())
}

#[tokio::test]
async fn what_the_service_kept_for_an_abandoned_request_is_given_back() {
    for (answer, expected) in answers() {
        let service = SlowService::start(answer);
        let app = App::new(handler(service.address));
        let request = tokio::spawn(async move { app.get("/api/x").await });
        assert!(service.next().await.starts_with("POST /v1/check "));
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        service.answer.send(()).unwrap();
        assert_eq!(shown(&service.next().await), expected);
    }
}

#[tokio::test]
async fn what_the_service_kept_is_given_back_if_it_answers_after_the_deadline() {
    for (answer, expected) in answers() {
        let service = SlowService::start(answer);
        let slow = handler(service.address).deadline(Duration::from_millis(200));
        let app = App::new(slow.deny_on_error());
        // The machine may be too busy to connect in time. Then nothing is sent.
        let end = tokio::time::Instant::now() + WAIT_TIMEOUT;
        while service.requests.try_recv().is_err() {
            assert!(tokio::time::Instant::now() < end, "no check arrives");
            assert_eq!(app.get("/api/x").await, 503);
        }
        service.answer.send(()).unwrap();
        let given_back = async {
            loop {
                let request = shown(&service.next().await);
                if !request.starts_with("POST /v1/check ") {
                    break request;
                }
            }
        };
        assert_eq!(given_back.await, expected);
    }
}

/// A check that was not sent charges nothing, so it is not sent later either.
#[tokio::test]
async fn a_check_that_was_not_sent_is_dropped_with_its_request() {
    let service = SlowService::start(ok(ALLOWED));
    let app = App::new(handler(service.address).deadline(GENEROUS));
    let request = tower::ServiceExt::oneshot(app.service.clone(), get("/api/x"));
    drop(request);
    service.answer.send(()).unwrap();
    assert_eq!(app.get("/api/y").await, 200);
    assert!(service.next().await.contains("/api/y"));
    assert!(service.requests.try_recv().is_err());
}
