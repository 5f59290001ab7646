//! Identity headers: an upstream sees only the identity that was counted.

use fluxgate_testkit::{RawUpstream, WireRequest};

use super::{TRANSPORTS, client, config, ok_upstream};
use crate::service::Service;
use crate::support::Dir;

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

/// Returns the requests of this user that the upstream received.
fn requests_of(upstream: &RawUpstream, user: &str) -> Vec<WireRequest> {
    let mut requests = upstream.requests();
    requests.retain(|request| request.values("x-user-id").contains(&user));
    requests
}

fn only_request_of(upstream: &RawUpstream, user: &str) -> WireRequest {
    let mut requests = requests_of(upstream, user);
    assert_eq!(requests.len(), 1, "{user}");
    requests.remove(0)
}

/// Sends a request with these header lines and returns the status.
fn status(service: &Service, lines: impl AsRef<[u8]>) -> u16 {
    let mut client = client(service);
    let head = b"GET /x HTTP/1.1\r\nHost: a\r\n";
    client.send([head, lines.as_ref(), b"\r\n"].concat());
    client.read_answer().unwrap().status
}

#[test]
fn lookalike_headers_are_removed() {
    let upstream = ok_upstream();
    let service = start(&upstream);
    for (index, transport) in TRANSPORTS.into_iter().enumerate() {
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
            let next_to_it =
                format!("X-User-Id: a-{index}-{number}\r\n{name}: b\r\nX_Other: c\r\n{transport}");
            assert_eq!(status(&service, next_to_it), 200, "{name}");
            let request = only_request_of(&upstream, &format!("a-{index}-{number}"));
            assert_eq!(request.values(&name.to_lowercase()), [""; 0], "{name}");
            assert_eq!(request.values("x_other"), ["c"]);
        }
        // Without the real header, the address is counted.
        let instead = format!("X_User_Id: b\r\n{transport}");
        let _ = status(&service, instead);
        let has_lookalike = |request: &WireRequest| !request.values("x_user_id").is_empty();
        assert!(!upstream.requests().iter().any(has_lookalike));
    }
}

/// A request without a real identity header is counted by its address.
#[test]
fn lookalike_headers_do_not_bypass_a_limit() {
    let upstream = ok_upstream();
    let service = start(&upstream);
    let statuses: Vec<_> = (0..6)
        .map(|n| status(&service, format!("X_User_Id: u{n}\r\n")))
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
}

#[test]
fn two_values_of_an_identity_are_rejected() {
    let upstream = ok_upstream();
    let service = start(&upstream);
    for (index, transport) in TRANSPORTS.into_iter().enumerate() {
        for name in ["X-User-Id", "X-API-Key", "X-Tenant-Id"] {
            let before = upstream.requests().len();
            let twice = format!("{name}: a\r\n{}: b\r\n{transport}", name.to_lowercase());
            assert_eq!(status(&service, twice), 400, "{name}");
            assert_eq!(upstream.requests().len(), before, "{name}");
        }
        let user = format!("same-{index}");
        let same = format!("X-User-Id: {user}\r\nX-User-Id: {user}\r\n{transport}");
        for expected in [200, 200, 200, 429] {
            assert_eq!(status(&service, &same), expected);
        }
        let forwarded = requests_of(&upstream, &user);
        assert_eq!(forwarded.len(), 3);
        for request in forwarded {
            assert_eq!(request.values("x-user-id"), [&*user]);
        }
    }
}

/// An upstream that reads the last line would serve a user that is not counted.
#[test]
fn two_values_of_a_configured_identity_are_rejected() {
    let upstream = ok_upstream();
    let config = config(&[upstream.address()], "main", "");
    let rest = "filters: { main: { rule_set: api, identity: { user: 'header:X-Who' } } }
rule_sets:
  api:
    rules:
      - { id: user, scope: per_user, bands: [ { capacity: 9, window: 1h } ] }
      - { id: key, scope: per_api_key, bands: [ { capacity: 9, window: 1h } ] }
";
    let service = Service::start(&["gateway"], &format!("{config}{rest}"));
    for transport in TRANSPORTS {
        for (lines, status) in [
            ("X-Who: a\r\nX-API-Key: k\r\n", 200),
            // Not an identity header in this configuration.
            ("X-User-Id: a\r\nX-User-Id: b\r\n", 200),
            ("X-Who: a\r\nx-who: b\r\n", 400),
            ("X-Who: a\r\nX-Who: a\r\n", 200),
            ("X-API-Key: k\r\nX-Who: a\r\nX-API-KEY:\r\n", 400),
        ] {
            let before = upstream.requests().len();
            let mut client = client(&service);
            client.send(format!(
                "GET /x HTTP/1.1\r\nHost: a\r\n{transport}{lines}\r\n"
            ));
            let response = client.read_answer().unwrap();
            assert_eq!(response.status, status, "{transport}{lines}");
            let forwarded = upstream.requests().len() - before;
            assert_eq!(forwarded, usize::from(status == 200), "{transport}{lines}");
        }
    }
}

/// A header that `Connection` names would not reach the upstream.
#[test]
fn an_identity_that_connection_names_is_rejected() {
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

/// The upstream would serve another request than the one that was routed and counted.
#[test]
fn no_header_that_is_read_may_be_dropped_by_connection() {
    let upstream = ok_upstream();
    let rest = "filters:
  main:
    rule_set: s
    identity: { user: ['cookie:session', 'jwt:sub'], api_key: bearer }
    attributes: { region: 'header:X-Region' }
    client_ip: 'header:X-Client-Addr'
    trusted_proxies: [10.0.0.0/8]
    jwt: { from: 'header:X-Token', secret_file: secret }
rule_sets:
  s:
    rules:
      - { id: user, scope: per_user, cost: 'header:X-Cost', bands: [ { capacity: 99, window: 1h } ] }
      - { id: plan, scope: global, match: { headers: { X-Plan: free } }, bands: [ { capacity: 99, window: 1h } ] }
";
    let upstream_address = upstream.address();
    let config = format!(
        "gateway:\n  routes:\n    - {{ id: beta, match: {{ headers: {{ X-Beta: '1' }} }}, \
         upstreams: ['http://{upstream_address}'], filters: [] }}\n    - {{ id: all, \
         upstreams: ['http://{upstream_address}'], filters: [main] }}\n{rest}"
    );
    let dir = Dir::new();
    dir.write("secret", "0123456789abcdef0123456789abcdef");
    let service = Service::start_in(dir, &["gateway"], &config);
    for name in [
        "Cookie",
        "authorization",
        "X-Region",
        "X-Client-Addr",
        "X-Token",
        "X-Cost",
        "X-Plan",
        "x-beta",
    ] {
        for transport in TRANSPORTS {
            let lines = format!("{name}: 1\r\nConnection: keep-alive, {name}\r\n{transport}");
            assert_eq!(status(&service, lines), 400, "{name}");
        }
    }
    assert_eq!(upstream.requests(), []);
    let lines = "X-Other: a\r\nConnection: close, X-Other\r\n";
    assert_eq!(status(&service, lines), 200);
}

/// Identities are compared byte by byte.
#[test]
fn users_that_are_not_utf8_have_separate_limits() {
    let upstream = ok_upstream();
    let service = start(&upstream);
    for (index, transport) in TRANSPORTS.into_iter().enumerate() {
        let users: [&[u8]; 3] = [b"jos\xe9", b"jos\xe8", b"jos\xc3\xa9"];
        for user in users {
            let user = [user, &[b'0' + u8::try_from(index).unwrap()]].concat();
            let lines = [b"X-User-Id: ", &user[..], b"\r\n", transport.as_bytes()].concat();
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
