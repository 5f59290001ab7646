//! Requests in flight end on what they began with.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use bytes::Bytes;
use fluxgate_testkit::{RawClient, WAIT_TIMEOUT};

use super::*;
use crate::http2_peers::{Http2Client, Http2Upstream, Settings, block_on, read, request};

/// What responses wait for.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let is_open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(is_open, |is_open| !*is_open).unwrap());
    }
}

/// Starts an upstream that sends half of each response, and the rest when the gate opens.
fn gated(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf");
        gate.wait();
        stream.write_all(b"half").is_ok()
    })
}

#[test]
fn a_stream_survives_its_route() {
    let gate = Gate::default();
    let (old, new) = (gated(&gate), Upstream::with_body("new"));
    let slots = "filters: { f: { rule_set: s } }\n";
    let rules = "rule_sets: { s: { rules: [ { id: r, scope: global, algorithm: concurrency, bands: [ { capacity: 2 } ] } ] } }\n";
    let route = format!("{{ id: old, upstreams: ['{}'], filters: [f] }}", old.url());
    let before = config(&[route], slots).replace("rule_sets: {}\n", rules);
    let service = run(&before);
    let mut streams = ["", "TE: trailers\r\n"].map(|line| {
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(format!("GET /x HTTP/1.1\r\nHost: a\r\n{line}\r\n"));
        client
    });
    wait_until("both are forwarded", || old.requests().len() == 2);
    // The route is gone, and the filter with its rules.
    reload(&service, &config(&[to(&[new.url()])], "filters: {}\n"));
    assert_eq!(client(&service).get("/x").body, "new");
    assert!(old.open_connections() > 0);
    gate.open();
    for stream in &mut streams {
        assert_eq!(stream.read_answer().unwrap().text(), "halfhalf");
        // The next request on the same connection is for the new routes.
        assert_eq!(stream.get("/x").unwrap().text(), "new");
    }
    wait_until("the old upstream is drained", || {
        old.open_connections() == 0
    });
    // The slots are free again.
    reload(&service, &before);
    for _ in 0..2 {
        assert_eq!(client(&service).get("/x").status, 200);
    }
}

#[test]
fn a_stream_over_http2_survives_its_upstream() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = Arc::clone(&gate);
    let old = Http2Upstream::serving(Settings::default(), move |mut call| {
        let gate = Arc::clone(&opened);
        async move {
            let mut stream = call.begin(200, &[], false);
            let _ = stream.send_data(Bytes::from_static(b"half"), false);
            gate.notified().await;
            let _ = stream.send_data(Bytes::from_static(b"half"), true);
        }
    });
    let new = Http2Upstream::start();
    let service = run(&config(&[to(&[old.url()])], ""));
    block_on(async {
        let mut client = Http2Client::connect(service.address("gateway")).await;
        let (response, _) = client.begin(request("GET", "/x", &[]), true).await;
        crate::http2_peers::until("it is forwarded", || old.streams() == 1).await;
        let next = config(&[to(&[new.url()])], "");
        reload(&service, &next);
        // The same connection, and the new upstream.
        let answer = client.send(request("GET", "/x", &[]), "").await.unwrap();
        assert_eq!(answer.body, b"ok");
        assert_eq!((old.open_connections(), old.streams()), (1, 1));
        gate.notify_one();
        assert_eq!(read(response).await.unwrap().body, b"halfhalf");
        let drained = "the old upstream is drained";
        crate::http2_peers::until(drained, || old.open_connections() == 0).await;
    });
}

#[test]
fn a_waiting_request_goes_to_the_upstream_that_it_waited_for() {
    let (old, new) = (Upstream::with_body("old"), Upstream::with_body("new"));
    let rules = "rule_sets: { s: { rules: [ { id: r, scope: global, on_exceed: wait, max_wait: 1m, bands: [ { capacity: 1, window: 3s } ] } ] } }\n";
    let route = format!("{{ id: old, upstreams: ['{}'], filters: [f] }}", old.url());
    let before = config(&[route], "filters: { f: { rule_set: s } }\n");
    let service = run(&before.replace("rule_sets: {}\n", rules));
    assert_eq!(client(&service).get("/x").body, "old");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client(&service).get("/x").body);
        wait_until("it waits", || {
            metrics(&service).contains("fluxgate_waiting 1\n")
        });
        reload(&service, &config(&[to(&[new.url()])], "filters: {}\n"));
        assert_eq!(client(&service).get("/x").body, "new");
        assert_eq!(waiting.join().unwrap(), "old");
    });
    assert_eq!(old.requests().len(), 2);
}

#[test]
fn an_upgraded_connection_survives_its_route() {
    let old = Upstream::start(|_, stream| {
        let head =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut bytes = [0; 10];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..count]).unwrap();
        }
        false
    });
    let new = Upstream::with_body("new");
    let service = run(&config(&[to(&[old.url()])], ""));
    let mut stream = TcpStream::connect(service.address("gateway")).unwrap();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(upgrade.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend_from_slice(&byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    reload(&service, &config(&[to(&[new.url()])], ""));
    assert_eq!(client(&service).get("/x").body, "new");
    let mut echoed = [0; 5];
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"hello");
}
