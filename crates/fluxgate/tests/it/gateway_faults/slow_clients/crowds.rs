//! Many at once.

use std::time::Duration;

use fluxgate_testkit::timed;

use super::super::{assert_serves, client, gateway, ok_upstream};
use super::assert_cut;

#[test]
fn many_slow_clients_hold_up_nobody() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "  timeouts: { headers: 2s }\n");
    let mut slow: Vec<_> = (0..500)
        .map(|_| {
            let mut client = client(&service);
            client.send("POST /x HTTP/1.1\r\nHost: a\r\nX");
            client
        })
        .collect();
    for _ in 0..20 {
        let ((), took) = timed(|| assert_serves(&service));
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    for client in &mut slow {
        assert_cut(client, &["408"]);
    }
}

/// More than `limits.connections` wait outside, and come in when one leaves.
#[test]
fn connections_are_bounded() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "  limits: { connections: 4 }\n");
    let mut inside: Vec<_> = (0..4).map(|_| client(&service)).collect();
    for client in &mut inside {
        assert_eq!(client.get("/x").unwrap().status, 200);
    }
    let mut outside = client(&service);
    outside.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    // Those inside are served meanwhile, often enough for the other to have been.
    for _ in 0..50 {
        for client in &mut inside {
            assert_eq!(client.get("/x").unwrap().status, 200);
        }
    }
    let is_late = |it: &fluxgate_testkit::WireRequest| it.target == "/late";
    assert!(!upstream.requests().iter().any(is_late));
    inside.pop();
    // It is let in, or was turned away at once.
    match outside.read_answer() {
        Ok(answer) => assert!([200, 503].contains(&answer.status), "{answer:?}"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof),
    }
}
