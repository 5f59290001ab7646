//! The status for upstreams and clients that are down, broken or slow.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use fluxgate_testkit::{RawClient, WAIT_TIMEOUT, ports, wait_for, wait_until};

use super::*;

#[test]
fn an_unreachable_upstream_is_a_502_and_its_cause_is_only_logged() {
    let port = ports::free();
    let dead = port.addr();
    let service = start(
        &[format!("{{ id: dead, upstreams: [\"http://{dead}\"] }}")],
        "",
    );
    let response = client(&service).request("GET", "/", &[("X-Request-Id", "r1")], "");
    assert_problem(&response, 502);
    assert!(!response.body.contains("refused"), "{response:?}");
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
fn an_invalid_response_is_a_502() {
    let upstream = Upstream::start(|request, stream| {
        let response = match request.request_line() {
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
            line if line.contains("/unrequested-upgrade") => {
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"
            }
            _ => "",
        };
        stream.write_all(response.as_bytes()).unwrap();
        false
    });
    let service = gateway_to(&[&upstream], "");
    for path in [
        "/garbage",
        "/lengths",
        "/both",
        "/list",
        "/coding",
        "/unrequested-upgrade",
        "/empty",
    ] {
        let response = client(&service).request("POST", path, &[], "x");
        assert_eq!(response.status, 502, "{path}: {response:?}");
    }
}

#[test]
fn an_upstream_that_does_not_respond_in_time_is_a_504() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let upstream = Upstream::start(move |_, _| released.lock().unwrap().recv().is_ok());
    let service = gateway_to(&[&upstream], "  timeouts: { request: 300ms }\n");
    assert_problem(&client(&service).get("/"), 504);
    drop(release);
}

#[test]
fn a_response_that_stalls_is_aborted() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let upstream = Upstream::start(move |_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
            .unwrap();
        released.lock().unwrap().recv().is_ok()
    });
    let service = gateway_to(&[&upstream], "  timeouts: { idle: 300ms }\n");
    assert!(client(&service).try_request("GET", "/", &[], "").is_err());
    drop(release);
}

#[test]
fn a_request_body_that_stalls_is_a_408() {
    let upstream = Upstream::with_body("");
    let service = gateway_to(&[&upstream], "  timeouts: { idle: 300ms }\n");
    let mut http = client(&service);
    http.send_raw(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
        .unwrap();
    assert_problem(&http.read_answer(false).unwrap(), 408);
    wait_until("the upstream sees the end", || {
        upstream.requests().len() == 1
    });
    assert!(!upstream.only_request().is_complete);
}

#[test]
fn an_incomplete_head_and_an_idle_connection_have_separate_timeouts() {
    let upstream = Upstream::with_body("");
    let service = gateway_to(&[&upstream], "  timeouts: { headers: 300ms, idle: 1h }\n");
    // On a busy machine, a new connection may be silent for longer than the timeout of heads.
    let mut idle = wait_for("a client that is served", || {
        let mut client = client(&service);
        let response = client.try_request("GET", "/", &[], "");
        response.is_ok_and(|it| it.status == 200).then_some(client)
    });
    let mut slow = RawClient::connect(service.address("gateway"));
    slow.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-Sl");
    slow.read_to_end().unwrap();
    // The timeout of heads has passed. It does not apply to an idle connection, but it
    // does to the next head on that connection.
    assert_eq!(idle.get("/").status, 200);
    idle.send_raw(b"GET / HTTP/1.1\r\nHost").unwrap();
    assert!(idle.read_answer(false).is_err());

    let service = gateway_to(&[&upstream], "  timeouts: { headers: 1h, idle: 300ms }\n");
    let mut idle = TcpStream::connect(service.address("gateway")).unwrap();
    idle.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    idle.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[test]
fn an_ambiguous_request_is_rejected() {
    let upstream = Upstream::with_body("");
    let service = gateway_to(&[&upstream], "");
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
        let response = http.read_answer(false).unwrap();
        assert_problem(&response, 400);
        // The client may see the end of such a request elsewhere.
        assert_eq!(response.header("connection"), Some("close"));
    }
    let mut http = client(&service);
    assert_problem(&http.request("GET", "/", &[("Expect", "more")], ""), 417);
    http.send_raw(b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n")
        .unwrap();
    assert_problem(&http.read_answer(false).unwrap(), 405);
    assert_eq!(upstream.connections(), 0);
}
