//! Spoofed client addresses.

use super::{client, config, ok_upstream};
use crate::service::Service;

const RULES: &str = "rule_sets:
  api:
    rules:
      - { id: r, scope: per_ip, bands: [ { capacity: 3, window: 1h } ] }
";

fn start(upstream: std::net::SocketAddr, filter: &str) -> Service {
    let config = config(&[upstream], "main", "");
    let filters = format!("filters: {{ main: {{ rule_set: api{filter} }} }}\n");
    Service::start(&["gateway"], &format!("{config}{filters}{RULES}"))
}

/// Sends ten requests, every other one over a new connection, and returns the statuses.
fn send_ten(service: &Service, headers: impl Fn(usize) -> String) -> Vec<u16> {
    let mut reused = client(service);
    let mut statuses = Vec::new();
    for n in 0..10 {
        let request = format!("GET /x HTTP/1.1\r\nHost: a\r\n{}\r\n", headers(n));
        let mut new = (n % 2 == 0).then(|| client(service));
        let client = new.as_mut().unwrap_or(&mut reused);
        client.send(request);
        statuses.push(client.read_answer().unwrap().status);
    }
    statuses
}

const THREE_ALLOWED: [u16; 10] = [200, 200, 200, 429, 429, 429, 429, 429, 429, 429];

#[test]
fn address_headers_of_an_untrusted_client_are_ignored() {
    let upstream = ok_upstream();
    let spoofs: [fn(usize) -> String; 7] = [
        |n| format!("X-Forwarded-For: 1.2.3.{n}\r\n"),
        |n| format!("X-Forwarded-For: 1.2.3.{n}, 4.5.6.{n}\r\nX-Forwarded-For: 7.8.9.{n}\r\n"),
        |n| format!("x-forwarded-for: ::ffff:1.2.3.{n}\r\n"),
        |n| format!("X-Forwarded-For: 127.0.0.{n}\r\n"),
        |n| format!("Forwarded: for=1.2.3.{n};proto=https\r\n"),
        |n| {
            format!(
                "X-Real-IP: 1.2.3.{n}\r\nCF-Connecting-IP: 1.2.3.{n}\r\nTrue-Client-IP: 1.2.3.{n}\r\n"
            )
        },
        |n| format!("X-Forwarded-For: garbage{n}\r\nX-Forwarded-For:\r\n"),
    ];
    for spoof in spoofs {
        let service = start(upstream.address(), "");
        assert_eq!(send_ten(&service, spoof), THREE_ALLOWED, "{}", spoof(0));
    }
}

/// The last address that is not a trusted proxy counts, not the ones before it.
#[test]
fn behind_a_trusted_proxy_the_first_address_is_ignored() {
    let upstream = ok_upstream();
    let trusted = ", trusted_proxies: [\"127.0.0.0/8\"]";
    let spoofs: [fn(usize) -> String; 3] = [
        |n| format!("X-Forwarded-For: 6.6.6.{n}, 1.2.3.4\r\n"),
        |n| format!("X-Forwarded-For: 6.6.6.{n}\r\nX-Forwarded-For: 1.2.3.4\r\n"),
        |n| format!("X-Forwarded-For: 6.6.6.{n}, 1.2.3.4, 127.0.0.9\r\n"),
    ];
    for spoof in spoofs {
        let service = start(upstream.address(), trusted);
        assert_eq!(send_ten(&service, spoof), THREE_ALLOWED, "{}", spoof(0));
    }
    let service = start(upstream.address(), trusted);
    let others = send_ten(&service, |n| format!("X-Forwarded-For: 1.2.3.{n}\r\n"));
    assert_eq!(others, [200; 10]);
}

#[test]
fn the_upstream_receives_the_real_address() {
    let upstream = ok_upstream();
    let service = start(upstream.address(), "");
    for request in [
        "GET /x HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a.example\r\nForwarded: for=6.6.6.6\r\n\r\n",
    ] {
        let mut client = client(&service);
        client.send(request);
        assert_eq!(client.read_answer().unwrap().status, 200);
    }
    for request in upstream.requests() {
        let addresses = request.values("x-forwarded-for").join(", ");
        let last = addresses.rsplit(", ").next().unwrap();
        assert_eq!(last, "127.0.0.1", "{request:?}");
        assert_eq!(request.values("x-forwarded-proto"), ["http"], "{request:?}");
        assert_eq!(
            request.values("x-forwarded-host"),
            ["a.example"],
            "{request:?}"
        );
    }
}

/// Some frameworks serve the path in these headers, which no rule has seen.
#[test]
fn not_even_a_trusted_proxy_replaces_the_target() {
    let upstream = ok_upstream();
    let service = start(upstream.address(), ", trusted_proxies: [\"127.0.0.0/8\"]");
    let names = [
        "X-Original-URL",
        "x-rewrite-url",
        "X_Original_URL",
        "x.rewrite.url",
    ];
    for transport in super::TRANSPORTS {
        let lines = names.map(|name| format!("{name}: /admin\r\n")).concat();
        let mut client = client(&service);
        client.send(format!(
            "GET /x HTTP/1.1\r\nHost: a\r\nX-Forwarded-Prefix: /p\r\n{lines}{transport}\r\n"
        ));
        assert_eq!(client.read_answer().unwrap().status, 200);
    }
    let requests = upstream.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.values("x-forwarded-prefix"), ["/p"]);
        for name in names {
            assert_eq!(request.values(&name.to_lowercase()), [""; 0], "{name}");
        }
    }
}
