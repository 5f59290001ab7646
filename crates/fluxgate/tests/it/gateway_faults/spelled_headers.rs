//! Headers that servers take for others: an upstream sees only what was counted.

use fluxgate_testkit::{RawUpstream, WireRequest};

use super::{client, config, ok_upstream};
use crate::service::Service;

const WAYS: [&str; 2] = ["", "TE: trailers\r\n"];

const RULES: &str = "filters: { main: { rule_set: s, client_ip: 'header:X-Client-Addr', trusted_proxies: [10.0.0.0/8] } }
rule_sets:
  s:
    rules:
      - { id: user, scope: per_user, bands: [ { capacity: 3, window: 1h } ] }
      - { id: tenant, key: ['header:X-Tenant-Id'], on_missing_key: skip, bands: [ { capacity: 3, window: 1h } ] }
      - { id: plan, scope: global, match: { headers: { X-Plan: free } }, bands: [ { capacity: 9999, window: 1h } ] }
";

fn start(upstream: &RawUpstream) -> Service {
    let config = config(&[upstream.address()], "main", "");
    Service::start(&["gateway"], &format!("{config}{RULES}"))
}

/// What the upstream got of this user.
fn of_user(upstream: &RawUpstream, user: &str) -> Vec<WireRequest> {
    let mut requests = upstream.requests();
    requests.retain(|request| request.values("x-user-id").contains(&user));
    requests
}

fn only_of(upstream: &RawUpstream, user: &str) -> WireRequest {
    let mut requests = of_user(upstream, user);
    assert_eq!(requests.len(), 1, "{user}");
    requests.remove(0)
}

/// The status of a request with these header lines.
fn status(service: &Service, lines: impl AsRef<[u8]>) -> u16 {
    let mut client = client(service);
    let head = b"GET /x HTTP/1.1\r\nHost: a\r\n";
    client.send([head, lines.as_ref(), b"\r\n"].concat());
    client.read_answer().unwrap().status
}

#[test]
fn underscores_do_not_bring_another_user_to_the_upstream() {
    let upstream = ok_upstream();
    let service = start(&upstream);
    for (index, way) in WAYS.into_iter().enumerate() {
        let lookalikes = [
            "X_User_Id",
            "x_user-id",
            "X-USER_ID",
            "X_API_Key",
            "X_Client-Addr",
            "X_Tenant_Id",
            "X_Plan",
            "X_Forwarded_For",
        ];
        for (number, name) in lookalikes.into_iter().enumerate() {
            let beside =
                format!("X-User-Id: a-{index}-{number}\r\n{name}: b\r\nX_Other: c\r\n{way}");
            assert_eq!(status(&service, beside), 200, "{name}");
            let request = only_of(&upstream, &format!("a-{index}-{number}"));
            assert_eq!(request.values(&name.to_lowercase()), [""; 0], "{name}");
            assert_eq!(request.values("x_other"), ["c"]);
        }
        // Instead of it: nobody is named, and the address is counted.
        let instead = format!("X_User_Id: b\r\n{way}");
        let _ = status(&service, instead);
        let is_named = |request: &WireRequest| !request.values("x_user_id").is_empty();
        assert!(!upstream.requests().iter().any(is_named));
    }
}

/// Whoever has no name in a header that counts is counted by address.
#[test]
fn underscores_do_not_avoid_a_limit() {
    let upstream = ok_upstream();
    let service = start(&upstream);
    let statuses: Vec<_> = (0..6)
        .map(|n| status(&service, format!("X_User_Id: u{n}\r\n")))
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
}

#[test]
fn a_source_with_two_values_is_refused() {
    let upstream = ok_upstream();
    let service = start(&upstream);
    for (index, way) in WAYS.into_iter().enumerate() {
        for name in ["X-User-Id", "X-API-Key", "X-Tenant-Id"] {
            let before = upstream.requests().len();
            let twice = format!("{name}: a\r\n{}: b\r\n{way}", name.to_lowercase());
            assert_eq!(status(&service, twice), 400, "{name}");
            assert_eq!(upstream.requests().len(), before, "{name}");
        }
        let user = format!("same-{index}");
        let same = format!("X-User-Id: {user}\r\nX-User-Id: {user}\r\n{way}");
        for expected in [200, 200, 200, 429] {
            assert_eq!(status(&service, &same), expected);
        }
        let forwarded = of_user(&upstream, &user);
        assert_eq!(forwarded.len(), 3);
        for request in forwarded {
            assert_eq!(request.values("x-user-id"), [&*user]);
        }
    }
}

/// What `Connection` names does not reach the upstream.
#[test]
fn a_connection_does_not_take_the_user_away() {
    let upstream = ok_upstream();
    let service = start(&upstream);
    for name in ["X-User-Id", "x-api-key", "X-Tenant-Id"] {
        let lines = format!("{name}: a\r\nConnection: close, {name}\r\n");
        assert_eq!(status(&service, lines), 400, "{name}");
    }
    assert_eq!(upstream.requests(), []);
    let lines = "X-Other: a\r\nConnection: close, X-Other\r\n";
    assert_eq!(status(&service, lines), 200);
}

/// They are somebody each, by their bytes.
#[test]
fn users_that_are_not_text_have_limits_of_their_own() {
    let upstream = ok_upstream();
    let service = start(&upstream);
    for (index, way) in WAYS.into_iter().enumerate() {
        let users: [&[u8]; 3] = [b"jos\xe9", b"jos\xe8", b"jos\xc3\xa9"];
        for user in users {
            let user = [user, &[b'0' + u8::try_from(index).unwrap()]].concat();
            let lines = [b"X-User-Id: ", &user[..], b"\r\n", way.as_bytes()].concat();
            for expected in [200, 200, 200, 429] {
                assert_eq!(
                    status(&service, &lines),
                    expected,
                    "{}",
                    user.escape_ascii()
                );
            }
        }
    }
}
