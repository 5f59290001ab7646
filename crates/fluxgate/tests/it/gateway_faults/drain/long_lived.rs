//! Shutdown during downloads and with open WebSockets.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use fluxgate_testkit::{RawClient, RawUpstream, wait_until};

use super::super::websocket::Echo;
use super::super::{client, gateway, script};
use super::{GRACE, SLACK, wait_for_exit};

#[test]
fn a_download_is_completed() {
    const PIECES: usize = 40;
    let upstream = RawUpstream::start(|connection| {
        connection.read_request();
        connection.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            PIECES * 1000
        ));
        connection.send_pieces("x".repeat(PIECES * 1000), 1000, Duration::from_millis(50));
    });
    let service = gateway(&[upstream.address()], "");
    let mut client = client(&service);
    client.send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the request is forwarded", || {
        upstream.accepted() > 0 && !upstream.requests().is_empty()
    });
    service.program.signal("TERM");
    wait_until("new connections are refused", || {
        RawClient::try_connect(service.address("gateway")).is_err()
    });
    assert_eq!(client.read_answer().unwrap().body.len(), PIECES * 1000);
    assert!(wait_for_exit(&service) < GRACE);
}

#[test]
fn an_endless_download_is_aborted_in_time() {
    let upstream = RawUpstream::start(|connection| {
        connection.read_request();
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        connection.send_pieces("1\r\nx\r\n".repeat(2000), 6, Duration::from_millis(50));
    });
    let service = gateway(&[upstream.address()], "");
    let mut client = client(&service);
    client.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the request is forwarded", || {
        upstream.accepted() > 0 && !upstream.requests().is_empty()
    });
    service.program.signal("TERM");
    let took = wait_for_exit(&service);
    assert!(took < GRACE + SLACK, "{took:?}");
    let error = client.read_answer().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
}

/// An open WebSocket still forwards messages, and does not delay the exit beyond the
/// grace period.
#[test]
fn a_websocket_is_served_until_the_end() {
    let echo = Echo::start();
    let service = gateway(&[echo.address], "");
    let url = format!("ws://{}/echo", service.address("gateway"));
    let mut holder = script("websocket.py")
        .args(["check", "hold", &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert_eq!(output.next().unwrap().unwrap(), "open");
    service.program.signal("TERM");
    wait_until("new connections are refused", || {
        RawClient::try_connect(service.address("gateway")).is_err()
    });
    let mut stdin = holder.stdin.take().unwrap();
    writeln!(stdin).unwrap();
    assert_eq!(output.next().unwrap().unwrap(), "still there");
    let took = wait_for_exit(&service);
    assert!(took < GRACE + SLACK, "{took:?}");
    drop(stdin);
    // It may have exited already.
    let _ = holder.kill();
    holder.wait().unwrap();
}
