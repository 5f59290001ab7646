//! Shutdown under load.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fluxgate_testkit::{RawClient, RawUpstream, now, wait_until};

use super::super::{OK, client, gateway, ok_upstream, script};
use super::{GRACE, wait_for_exit};

const CLIENTS: u32 = 64;

/// Starts an upstream that takes 2 ms per request.
fn slow_upstream() -> RawUpstream {
    RawUpstream::start(|connection| {
        while connection.read_request().is_some() {
            connection.pause(Duration::from_millis(2));
            connection.send(OK);
        }
    })
}

/// How long a connection without a request stays open after the signal. A client that is late
/// because the machine is busy may lose its request.
const LINGER: Duration = Duration::from_millis(500);

/// What the clients share.
#[derive(Default)]
struct Load {
    /// The clients that have been answered.
    started: AtomicU32,
    answered: AtomicU32,
    lost: AtomicU32,
    /// When the signal was sent.
    signal: OnceLock<Instant>,
}

/// Sends requests until the connection ends.
fn send_until_the_end(client: &mut RawClient, number: u32, load: &Load) {
    let request = match number % 3 {
        0 => "GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
        1 => "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        _ => {
            "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        }
    };
    let mut is_first = true;
    loop {
        client.send(request);
        let sent = now();
        match client.read_answer() {
            Ok(response) => {
                assert_eq!((response.status, response.text().as_str()), (200, "ok"));
                load.answered.fetch_add(1, Ordering::Relaxed);
                if response.is_last() {
                    break;
                }
            }
            // The previous response did not announce the end.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
                let is_late = { load.signal.get() }.is_some_and(|at| sent >= *at + LINGER);
                load.lost.fetch_add(u32::from(!is_late), Ordering::Relaxed);
                break;
            }
        }
        if std::mem::take(&mut is_first) {
            load.started.fetch_add(1, Ordering::Relaxed);
        }
    }
    let is_signalled = load.signal.get().is_some();
    assert!(is_signalled, "the connection ended before the signal");
}

#[test]
fn no_http1_request_is_lost() {
    let upstream = slow_upstream();
    let service = gateway(&[upstream.address()], "");
    let load = Load::default();
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (load, service) = (&load, &service);
            scope.spawn(move || send_until_the_end(&mut client(service), number, load));
        }
        // A connection that the service has not accepted yet would be refused.
        wait_until("under load", || {
            load.started.load(Ordering::Relaxed) == CLIENTS
                && load.answered.load(Ordering::Relaxed) > 10 * CLIENTS
        });
        load.signal.set(now()).unwrap();
        service.program.signal("TERM");
    });
    assert!(wait_for_exit(&service) < GRACE);
    assert_eq!(load.lost.load(Ordering::Relaxed), 0);
    // Each answered request was forwarded exactly once.
    let answered = usize::try_from(load.answered.load(Ordering::Relaxed)).unwrap();
    assert_eq!(upstream.requests().len(), answered);
}

#[test]
fn no_http2_stream_is_lost() {
    let upstream = slow_upstream();
    let service = gateway(&[upstream.address()], "");
    let mut load = script("http2_load.py")
        .arg(service.address("gateway").to_string())
        .args(["8", "8"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(load.stdout.take().unwrap()).lines();
    assert_eq!(output.next().unwrap().unwrap(), "under load");
    service.program.signal("TERM");
    let result: serde_json::Value = serde_json::from_str(&output.next().unwrap().unwrap()).unwrap();
    assert!(load.wait().unwrap().success());
    assert_eq!(result["lost"], 0, "{result}");
    assert_eq!(result["announced"], 8, "{result}");
    assert!(wait_for_exit(&service) < GRACE);
    let answered = usize::try_from(result["answered"].as_u64().unwrap()).unwrap();
    assert_eq!(upstream.requests().len(), answered, "{result}");
}

#[test]
fn idle_connections_do_not_delay_the_shutdown() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    let mut idle: Vec<_> = (0..20).map(|_| client(&service)).collect();
    for client in idle.iter_mut().skip(10) {
        assert_eq!(client.get("/x").unwrap().status, 200);
    }
    service.program.signal("TERM");
    assert!(wait_for_exit(&service) < Duration::from_secs(10));
    for client in &mut idle {
        assert_eq!(client.read_to_end().unwrap(), b"");
    }
}

#[test]
fn a_request_with_an_incomplete_body_is_served() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    for is_reused in [false, true] {
        let mut client = client(&service);
        if is_reused {
            assert_eq!(client.get("/x").unwrap().status, 200);
        }
    }
    let mut uploader = client(&service);
    uploader.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    wait_until("its head is forwarded", || {
        let received = upstream.received();
        received.iter().any(|it| it.bytes.ends_with(b"hello"))
    });
    service.program.signal("TERM");
    wait_until("new connections are refused", || {
        RawClient::try_connect(service.address("gateway")).is_err()
    });
    uploader.send("world");
    let response = uploader.read_answer().unwrap();
    assert_eq!((response.status, response.is_last()), (200, true));
    assert!(wait_for_exit(&service) < GRACE);
}
