//! Upstreams that are down, broken or slow, and clients that are.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use fluxgate_testkit::{WAIT_TIMEOUT, wait_until};

use super::*;

#[test]
fn an_upstream_that_is_down_is_a_502_that_names_no_cause_to_the_client() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = port.local_addr().unwrap();
    drop(port);
    let service = start(
        &[format!("{{ id: dead, upstreams: [\"http://{dead}\"] }}")],
        "",
    );
    let answer = client(&service).request("GET", "/", &[("X-Request-Id", "r1")], "");
    assert_problem(&answer, 502);
    assert!(!answer.body.contains("refused"), "{answer:?}");
    let line = service.wait_for_log("not forwarded");
    assert_eq!(
        (&line["route"], &line["request_id"]),
        (&"dead".into(), &"r1".into())
    );
    assert!(
        line["cause"].as_str().unwrap().contains("refused"),
        "{line}"
    );
}

#[test]
fn an_answer_that_cannot_be_read_is_a_502() {
    let upstream = Upstream::start(|seen, stream| {
        let answer = match seen.line() {
            line if line.contains("/garbage") => "NONSENSE\r\n\r\n",
            line if line.contains("/lengths") => {
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"
            }
            line if line.contains("/both") => {
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
            }
            line if line.contains("/list") => "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nab",
            line if line.contains("/coding") => {
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n"
            }
            line if line.contains("/unasked") => {
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"
            }
            _ => "",
        };
        stream.write_all(answer.as_bytes()).unwrap();
        false
    });
    let service = before(&[&upstream], "");
    for path in [
        "/garbage", "/lengths", "/both", "/list", "/coding", "/unasked", "/nothing",
    ] {
        let answer = client(&service).request("POST", path, &[], "x");
        assert_eq!(answer.status, 502, "{path}: {answer:?}");
    }
}

#[test]
fn an_upstream_that_does_not_begin_to_answer_is_a_504() {
    let (held, release) = std::sync::mpsc::channel::<()>();
    let release = std::sync::Mutex::new(release);
    let upstream = Upstream::start(move |_, _| release.lock().unwrap().recv().is_ok());
    let service = before(&[&upstream], "  timeouts: { request: 300ms }\n");
    assert_problem(&client(&service).get("/"), 504);
    drop(held);
}

#[test]
fn an_upstream_that_stops_in_the_middle_is_cut_off() {
    let (held, release) = std::sync::mpsc::channel::<()>();
    let release = std::sync::Mutex::new(release);
    let upstream = Upstream::start(move |_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
            .unwrap();
        release.lock().unwrap().recv().is_ok()
    });
    let service = before(&[&upstream], "  timeouts: { idle: 300ms }\n");
    assert!(client(&service).try_request("GET", "/", &[], "").is_err());
    drop(held);
}

#[test]
fn a_client_that_stops_in_the_middle_of_its_body_is_a_408() {
    let upstream = Upstream::saying("");
    let service = before(&[&upstream], "  timeouts: { idle: 300ms }\n");
    let mut http = client(&service);
    http.send_raw(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
        .unwrap();
    assert_problem(&http.read_answer(false).unwrap(), 408);
    wait_until("the upstream notices", || upstream.seen().len() == 1);
    assert!(!upstream.only().whole);
}

#[test]
fn a_client_that_does_not_finish_its_head_is_cut_off_and_an_idle_one_later() {
    let upstream = Upstream::saying("");
    let service = before(&[&upstream], "  timeouts: { headers: 300ms, idle: 1h }\n");
    let mut slow = TcpStream::connect(service.address("gateway")).unwrap();
    slow.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Sl")
        .unwrap();
    let mut idle = client(&service);
    assert_eq!(idle.get("/").status, 200);
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).unwrap();
    // That took as long as a head may; a connection without one lasts longer, and
    // then has as long for its next head.
    assert_eq!(idle.get("/").status, 200);
    idle.send_raw(b"GET / HTTP/1.1\r\nHost").unwrap();
    assert!(idle.read_answer(false).is_err());

    let service = before(&[&upstream], "  timeouts: { headers: 1h, idle: 300ms }\n");
    let mut idle = TcpStream::connect(service.address("gateway")).unwrap();
    idle.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    idle.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let upstream = Upstream::saying("");
    let service = before(&[&upstream], "");
    for head in [
        "GET / HTTP/1.1\r\n",
        "GET http://a/ HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n",
        "GET /a/../b HTTP/1.1\r\nHost: a\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent_Length: 1\r\n",
    ] {
        let mut http = client(&service);
        http.send_raw(format!("{head}\r\n").as_bytes()).unwrap();
        let answer = http.read_answer(false).unwrap();
        assert_problem(&answer, 400);
        // Who sent that may see the end of it elsewhere.
        assert_eq!(answer.header("connection"), Some("close"));
    }
    let mut http = client(&service);
    assert_problem(&http.request("GET", "/", &[("Expect", "more")], ""), 417);
    http.send_raw(b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n")
        .unwrap();
    assert_problem(&http.read_answer(false).unwrap(), 405);
    assert_eq!(upstream.connections(), 0);
}
