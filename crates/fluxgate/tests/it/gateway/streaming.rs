//! Bodies that are passed on while they come.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};

use fluxgate_testkit::{WAIT_TIMEOUT, wait_until};

use super::*;

fn connect(service: &Service) -> TcpStream {
    let stream = TcpStream::connect(service.address("gateway")).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    stream
}

/// Reads until this has come.
#[track_caller]
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0];
        let read = stream.read(&mut byte).unwrap();
        assert_eq!(read, 1, "{end:?} in {:?}", String::from_utf8_lossy(&text));
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn an_answer_is_passed_on_while_it_comes_and_with_its_trailers() {
    let (go_on, told) = mpsc::channel::<()>();
    let told = Mutex::new(told);
    let upstream = Upstream::start(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n";
        stream
            .write_all(format!("{head}5\r\nfirst\r\n").as_bytes())
            .unwrap();
        told.lock().unwrap().recv().unwrap();
        stream
            .write_all(b"4\r\nlast\r\n0\r\nx-sum: 9\r\n\r\n")
            .is_ok()
    });
    let service = before(&[&upstream], "");
    let mut stream = connect(&service);
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n")
        .unwrap();
    read_until(&mut stream, "5\r\nfirst\r\n");
    go_on.send(()).unwrap();
    let rest = read_until(&mut stream, "\r\n\r\n");
    assert_eq!(rest, "4\r\nlast\r\n0\r\nx-sum: 9\r\n\r\n");
}

#[test]
fn a_request_is_passed_on_while_it_comes() {
    let (answered, got) = mpsc::channel::<Vec<u8>>();
    let answered = Mutex::new(answered);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let upstream = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        read_until(&mut stream, "5\r\nfirst\r\n");
        answered
            .lock()
            .unwrap()
            .send(b"the first".to_vec())
            .unwrap();
        read_until(&mut stream, "0\r\n\r\n");
        stream
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .unwrap();
    });
    let service = start(
        &[format!("{{ id: r, upstreams: [\"http://{address}\"] }}")],
        "",
    );
    let mut stream = connect(&service);
    stream
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
        )
        .unwrap();
    assert_eq!(got.recv_timeout(WAIT_TIMEOUT).unwrap(), b"the first");
    stream.write_all(b"4\r\nlast\r\n0\r\n\r\n").unwrap();
    assert!(read_until(&mut stream, "\r\n\r\n").starts_with("HTTP/1.1 204"));
    upstream.join().unwrap();
}

#[test]
fn an_answer_that_breaks_off_does_not_look_whole() {
    let upstream = Upstream::start(|seen, stream| {
        let rest = match seen.line().split(' ').nth(1).unwrap() {
            "/chunked" => "transfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n",
            "/length" => "content-length: 10\r\n\r\nfirst",
            "/no-chunk" => "transfer-encoding: chunked\r\n\r\n",
            _ => "content-length: 10\r\n\r\n",
        };
        stream
            .write_all(format!("HTTP/1.1 200 OK\r\n{rest}").as_bytes())
            .unwrap();
        false
    });
    let service = before(&[&upstream], "");
    for path in ["/chunked", "/length", "/no-chunk", "/nothing"] {
        let mut stream = connect(&service);
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        // Whoever sees nothing at all may ask again.
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {text:?}");
        assert!(
            !body.contains("0\r\n\r\n") && body.len() < 12,
            "{path}: {text:?}"
        );
    }
}

#[test]
fn a_body_is_passed_on_whatever_the_method() {
    let upstream = Upstream::saying("");
    let service = before(&[&upstream], "");
    for (number, method) in ["GET", "DELETE", "POST", "OPTIONS"].into_iter().enumerate() {
        let mut http = client(&service);
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        http.send_raw(format!("{head}5\r\nhello\r\n0\r\n\r\n").as_bytes())
            .unwrap();
        assert_eq!(http.read_answer(false).unwrap().status, 200);
        let seen = &upstream.seen()[number];
        assert_eq!(
            (&*seen.body, seen.header("transfer-encoding")),
            (&b"hello"[..], vec!["chunked"])
        );
    }
}

#[test]
fn a_client_that_breaks_off_does_not_look_whole_to_the_upstream() {
    let upstream = Upstream::saying("");
    let service = before(&[&upstream], "");
    let mut stream = connect(&service);
    stream
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
        )
        .unwrap();
    wait_until("it is on its way", || upstream.connections() == 1);
    drop(stream);
    wait_until("the upstream notices", || upstream.seen().len() == 1);
    assert!(!upstream.only().whole);
}

#[test]
fn what_is_in_flight_is_answered_before_the_service_ends() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let upstream = Upstream::start(move |_, stream| {
        held.lock().unwrap().recv().unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone")
            .is_ok()
    });
    let service = before(&[&upstream], "");
    let mut http = client(&service);
    http.send_raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    wait_until("it is in flight", || upstream.seen().len() == 1);
    service.program.signal("TERM");
    service.wait_for_log("closing");
    release.send(()).unwrap();
    let answer = http.read_answer(false).unwrap();
    assert_eq!(
        (&*answer.body, answer.header("connection")),
        ("done", Some("close"))
    );
    assert_eq!(service.program.wait().code(), Some(0));
}
