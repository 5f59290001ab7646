//! Requests that frameworks read as another one, over both transports and through
//! `/v1/forward_auth`.

use std::fmt::Write as _;

use fluxgate_testkit::WireRequest;
use fluxgate_testkit::readings::{READINGS, Reading, SentRequest, Treatment};

use super::{TRANSPORTS, client, ok_upstream};
use crate::http2_peers::Http2Upstream;
use crate::service::Service;

/// Returns filters and rule sets for all readings, by number, with a limit of one.
fn limits() -> String {
    let (mut filters, mut sets) = (String::from("filters:\n"), String::from("rule_sets:\n"));
    for (number, Reading { api_key, rule, .. }) in READINGS.iter().enumerate() {
        for transport in 0..TRANSPORTS.len() {
            let name = format!("r{number}-{transport}");
            writeln!(
                filters,
                "  {name}: {{ rule_set: {name}, identity: {{ api_key: '{api_key}' }} }}"
            )
            .unwrap();
            writeln!(
                sets,
                "  {name}: {{ rules: [ {{ id: r, bands: [ {{ capacity: 1, window: 1h }} ], {rule} }} ] }}"
            )
            .unwrap();
        }
    }
    filters + &sets
}

#[test]
fn the_gateway_counts_what_frameworks_read() {
    let upstream = ok_upstream();
    let url = format!("http://{}", upstream.address());
    check_readings(&url, || upstream.requests());
}

#[test]
fn the_gateway_counts_what_frameworks_read_over_http2() {
    let upstream = Http2Upstream::start();
    check_readings(&upstream.url(), || upstream.requests());
}

/// Checks every reading with an upstream at this URL that has received these requests.
fn check_readings(url: &str, requests: impl Fn() -> Vec<WireRequest>) {
    let mut config = String::from("gateway:\n  routes:\n");
    for number in 0..READINGS.len() {
        for transport in 0..TRANSPORTS.len() {
            let name = format!("r{number}-{transport}");
            writeln!(
                config,
                "    - {{ id: {name}, match: {{ host: [{name}] }}, upstreams: ['{url}'], filters: [{name}] }}"
            )
            .unwrap();
        }
    }
    let service = Service::start(&["gateway"], &(config + &limits()));
    for (number, reading) in READINGS.iter().enumerate() {
        for (index, transport) in TRANSPORTS.into_iter().enumerate() {
            let send = |request: &SentRequest| {
                let mut client = client(&service);
                let SentRequest { method, target, .. } = request;
                let headers = request.headers.iter();
                let headers = headers.map(|(name, value)| format!("{name}: {value}\r\n"));
                let headers: String = headers.collect();
                client.send(format!(
                    "{method} {target} HTTP/1.1\r\nHost: r{number}-{index}\r\n{transport}{headers}\r\n"
                ));
                client.read_answer().unwrap().status
            };
            assert_eq!(send(&reading.plain), 200, "{reading:?}");
            let host = format!("r{number}-{index}");
            let status = send(&reading.spelled);
            let mut forwarded = requests();
            forwarded.retain(|request| request.values("host") == [&host]);
            match reading.treatment {
                Treatment::Counted => assert_eq!(status, 429, "{reading:?}"),
                Treatment::Rejected => assert_eq!(status, 400, "{reading:?}"),
                Treatment::Removed | Treatment::RemovedByProxies => {
                    assert_eq!(status, 200, "{reading:?}");
                    let (name, _) = reading.spelled.headers.last().unwrap();
                    assert_eq!(forwarded.len(), 2, "{reading:?}");
                    for request in forwarded {
                        let values = request.values(&name.to_lowercase());
                        assert_eq!(values, [""; 0], "{reading:?}");
                    }
                    continue;
                }
            }
            assert_eq!(forwarded.len(), 1, "{reading:?}");
        }
    }
}

#[test]
fn forward_auth_counts_what_frameworks_read() {
    let service = Service::start(&[], &limits());
    let mut http = service.http();
    for (number, reading) in READINGS.iter().enumerate() {
        for is_path_form in [false, true] {
            let mut send = |request: &SentRequest| {
                let described = [
                    ("X-Forwarded-Method", request.method),
                    ("X-Forwarded-Uri", request.target),
                    ("X-Forwarded-For", "192.0.2.1"),
                ];
                if is_path_form {
                    let headers = [&described[2..], request.headers].concat();
                    let target = format!("/v1/forward_auth;filter=r{number}-1{}", request.target);
                    http.request(request.method, &target, &headers, "").status
                } else {
                    let headers = [&described[..], request.headers].concat();
                    let target = format!("/v1/forward_auth?filter=r{number}-0");
                    http.request("GET", &target, &headers, "").status
                }
            };
            assert_eq!(send(&reading.plain), 200, "{is_path_form} {reading:?}");
            let expected = match reading.treatment {
                Treatment::Counted => 429,
                _ => 400,
            };
            let status = send(&reading.spelled);
            assert_eq!(status, expected, "{is_path_form} {reading:?}");
        }
    }
}

/// After a switch to HTTP, further requests would reach the upstream without being counted.
#[test]
fn only_websocket_by_itself_is_an_upgrade() {
    let upstream = ok_upstream();
    let service = super::gateway(&[upstream.address()], "");
    let cases = [
        ("websocket", &["websocket"][..]),
        ("WebSocket", &["WebSocket"]),
        ("foo, HTTP/1.1", &[]),
        ("websocket, h2c", &[]),
        ("h2c", &[]),
        ("TLS/1.0", &[]),
    ];
    for (number, (protocols, forwarded)) in cases.into_iter().enumerate() {
        let mut client = client(&service);
        client.send(format!(
            "GET /{number} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocols}\r\n\r\n"
        ));
        assert_eq!(client.read_answer().unwrap().status, 200, "{protocols}");
        // The upstream lists requests by connection, and connections are reused.
        let mut requests = upstream.requests().into_iter();
        let request = requests.find(|request| request.target == format!("/{number}"));
        let request = request.expect("the request was answered");
        assert_eq!(request.values("upgrade"), forwarded, "{protocols}");
    }
}
