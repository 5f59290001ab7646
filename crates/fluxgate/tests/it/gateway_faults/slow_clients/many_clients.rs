//! Many slow clients at once, and the limit on connections.

use super::super::{assert_serves_promptly, client, gateway, ok_upstream};
use super::assert_closed;

#[test]
fn many_slow_clients_do_not_delay_others() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "  timeouts: { headers: 2s }\n");
    let mut slow: Vec<_> = (0..500)
        .map(|_| {
            let mut client = client(&service);
            client.send("POST /x HTTP/1.1\r\nHost: a\r\nX");
            client
        })
        .collect();
    assert_serves_promptly(&service);
    for client in &mut slow {
        assert_closed(client, &["408"]);
    }
}

/// Connections over `limits.connections` wait until another closes.
#[test]
fn connections_are_limited() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "  limits: { connections: 4 }\n");
    let mut accepted: Vec<_> = (0..4).map(|_| client(&service)).collect();
    for client in &mut accepted {
        assert_eq!(client.get("/x").unwrap().status, 200);
    }
    let mut waiting = client(&service);
    waiting.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    // In the meantime the accepted ones are served, many times over.
    for _ in 0..50 {
        for client in &mut accepted {
            assert_eq!(client.get("/x").unwrap().status, 200);
        }
    }
    let is_late = |it: &fluxgate_testkit::WireRequest| it.target == "/late";
    assert!(!upstream.requests().iter().any(is_late));
    accepted.pop();
    // It is accepted now, or was closed at once.
    match waiting.read_answer() {
        Ok(response) => assert!([200, 503].contains(&response.status), "{response:?}"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof),
    }
}
