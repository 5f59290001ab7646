//! Headers of the PROXY protocol: those of load balancers count, all others close the connection.

use std::fs;
use std::net::TcpStream;
use std::process::Command;

use fluxgate_testkit::{Certificates, RawClient, wait_until};

use super::*;
use crate::service::telemetry::Metrics;
use crate::support::Dir;

/// One request for each address.
const ONE_EACH: &str = "filters: { main: { rule_set: s } }
rule_sets: { s: { rules: [ { id: r, scope: per_ip, bands: [ { capacity: 1, window: 1h } ] } ] } }
";

fn start_behind(balancers: &str, more: &str) -> Service {
    // Longer than a header takes, even on a busy machine.
    start_within("1m", balancers, more)
}

fn start_within(timeout: &str, balancers: &str, more: &str) -> Service {
    let config = format!(
        "{ONE_EACH}gateway:
  proxy_protocol: true
  trusted_proxies: [{balancers}]
  timeouts: {{ headers: {timeout} }}
  routes: [ {{ id: all, upstreams: [echo], filters: [main] }} ]
{more}"
    );
    Service::start(&["gateway"], &config)
}

fn failures(service: &Service) -> u64 {
    Metrics::of(service).get("fluxgate_proxy_protocol_failures_total")
}

/// Returns a header of version 2 for a connection from this IPv4 address, with an extension.
fn version_2(address: [u8; 4]) -> Vec<u8> {
    let addresses = [&address[..], &[10, 0, 0, 1], &[0x12, 0x34], &[0, 80]].concat();
    let extension = [0x04, 0, 2, 0, 0];
    let length = u16::try_from(addresses.len() + extension.len()).unwrap();
    [
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11",
        &length.to_be_bytes()[..],
        &addresses,
        &extension,
    ]
    .concat()
}

/// Sends a header and a request; returns the status and the body.
fn request(service: &Service, header: &[u8], byte_by_byte: bool) -> (u16, String) {
    let mut client = RawClient::connect(service.address("gateway"));
    let request = [header, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    if byte_by_byte {
        client.send_byte_by_byte(request);
    } else {
        client.send(request);
    }
    let answer = client.read_answer().unwrap();
    (answer.status, answer.text())
}

#[test]
fn the_address_in_the_header_is_the_client() {
    let service = start_behind("127.0.0.1", "");
    for (index, byte_by_byte) in [false, true].into_iter().enumerate() {
        let v1 = format!("PROXY TCP4 192.0.2.{index} 10.0.0.1 4660 80\r\n");
        let v2 = version_2([192, 0, 2, 10 + index as u8]);
        let ip = |last: usize| format!("[\"x-forwarded-for\",\"192.0.2.{last}\"]");
        for (header, expected) in [(v1.as_bytes(), ip(index)), (&v2[..], ip(10 + index))] {
            let (status, body) = request(&service, header, byte_by_byte);
            assert_eq!(status, 200);
            assert!(body.contains(&expected), "{body}");
            // It is the same client on another connection.
            assert_eq!(request(&service, header, false).0, 429);
        }
    }
    // A connection of the load balancer itself.
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0";
    let (status, body) = request(&service, local, false);
    assert_eq!(status, 200);
    assert!(
        body.contains("[\"x-forwarded-for\",\"127.0.0.1\"]"),
        "{body}"
    );
    assert_eq!(request(&service, b"PROXY UNKNOWN\r\n", false).0, 429);
    assert_eq!(failures(&service), 0);
}

#[test]
fn connections_without_a_valid_header_are_closed() {
    let service = start_behind("127.0.0.1", "");
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(200));
    let huge = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11"[..], &[0xff, 0xff]].concat();
    let hostile: [&[u8]; 9] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PROXY TCP4 a b c d\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 1 2\n",
        b"PROXY UDP4 192.0.2.1 10.0.0.1 1 2\r\n",
        long.as_bytes(),
        &huge,
        b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c............",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x01x",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
    ];
    for (index, header) in hostile.iter().enumerate() {
        let mut client = RawClient::connect(service.address("gateway"));
        client.send(header);
        assert_eq!(client.read_to_end().unwrap(), b"", "{index}");
        wait_until("it is counted", || failures(&service) == index as u64 + 1);
    }
    let line = service.wait_for_log("a connection has no valid PROXY header");
    assert_eq!(
        line["error"],
        "the header is malformed: it has no known signature"
    );
    // The client leaves within the header.
    let mut gone = RawClient::connect(service.address("gateway"));
    gone.send("PROXY TCP4");
    gone.finish();
    wait_until("it is counted", || failures(&service) == 10);
}

#[test]
fn a_header_that_is_not_complete_in_time_closes_the_connection() {
    let service = start_within("1s", "127.0.0.1", "");
    // Others are served, while one sends nothing, or nothing more.
    let slow = TcpStream::connect(service.address("gateway")).unwrap();
    let mut truncated = RawClient::connect(service.address("gateway"));
    truncated.send("PROXY TCP4 192.0.");
    assert_eq!(request(&service, &version_2([192, 0, 2, 1]), false).0, 200);
    wait_until("both are given up", || failures(&service) == 2);
    assert_eq!(truncated.read_to_end().unwrap(), b"");
    drop(slow);
}

#[test]
fn only_named_load_balancers_may_send_headers() {
    let service = start_behind("10.0.0.0/8", "");
    let mut client = RawClient::connect(service.address("gateway"));
    client.send(version_2([192, 0, 2, 1]));
    assert_eq!(client.read_to_end().unwrap(), b"");
    let line = service.wait_for_log("a connection has no valid PROXY header");
    assert_eq!(
        line["error"],
        "the peer is not in `gateway.trusted_proxies`"
    );
    // The API has no headers.
    assert_eq!(service.http().get("/livez").status, 200);
}

#[test]
fn tls_follows_the_header() {
    let certificates = Certificates::generate();
    let dir = Dir::new();
    fs::copy(certificates.server_cert(), dir.path("tls.crt")).unwrap();
    fs::copy(certificates.server_key(), dir.path("tls.key")).unwrap();
    let config = "gateway: { proxy_protocol: true, trusted_proxies: [127.0.0.1], routes: [ { id: r, upstreams: [echo] } ], tls: { cert: tls.crt, key: tls.key } }\n";
    let service = Service::start_in(dir, &["gateway"], config);
    let port = service.address("gateway").port();
    for version in ["--http1.1", "--http2"] {
        // curl sends version 1, with its own address.
        let output = Command::new("curl")
            .args([
                "-sS",
                version,
                "--haproxy-protocol",
                "--max-time",
                "30",
                "--cacert",
            ])
            .arg(certificates.ca())
            .arg(format!("https://localhost:{port}/x"))
            .output()
            .unwrap();
        let body = String::from_utf8_lossy(&output.stdout);
        assert!(body.contains("\"path\":\"/x\""), "{version}: {output:?}");
    }
    assert_eq!(failures(&service), 0);
}
