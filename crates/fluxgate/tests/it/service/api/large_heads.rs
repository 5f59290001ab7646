//! The limit on the size of request heads.

use std::process::Command;

use fluxgate_testkit::RawClient;

use super::RULES;
use crate::service::Service;
use crate::support::python;

const MAX_BYTES: usize = 64 * 1024;
const START: &str = "GET /livez HTTP/1.1\r\nHost: a\r\n";

/// Returns a head of this many bytes.
fn head(bytes: usize) -> String {
    let value = bytes - START.len() - "X: \r\n\r\n".len();
    format!("{START}X: {}\r\n\r\n", "a".repeat(value))
}

#[test]
fn a_head_has_at_most_64_kib() {
    let service = Service::start(&["grpc"], RULES);
    let ten_thousand = "a".repeat(10_000);
    let several: String = (0..7)
        .map(|it| format!("X{it}: {ten_thousand}\r\n"))
        .collect();
    let lines: String = (0..101).map(|it| format!("X{it}: a\r\n")).collect();
    let spaces = format!("X: {}a\r\n", " ".repeat(70_000));
    for (what, head, status) in [
        ("the maximum", head(MAX_BYTES), 200),
        ("one byte more", head(MAX_BYTES + 1), 431),
        ("80,000", head(80_000), 431),
        ("1,000,000", head(1_000_000), 431),
        ("several", format!("{START}{several}\r\n"), 431),
        ("spaces", format!("{START}{spaces}\r\n"), 431),
        ("lines", format!("{START}{lines}\r\n"), 431),
    ] {
        let mut client = RawClient::connect(service.address("api"));
        client.send(&head);
        let answer = client.read_answer().unwrap();
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        if status == 431 {
            let body = String::from_utf8_lossy(&answer.body);
            assert!(body.contains("\"status\":431"), "{what}: {body}");
            assert_eq!(client.read_to_end().unwrap(), b"", "{what}");
        }
    }
    let mut client = RawClient::connect(service.address("grpc"));
    client.send(head(MAX_BYTES + 1));
    assert_eq!(client.read_answer().unwrap().status, 431);
    let metrics = service.http().get("/metrics").body;
    for (listener, count) in [("api", 6), ("grpc", 1)] {
        let counted = format!(
            "fluxgate_http_requests_total{{listener=\"{listener}\",status_class=\"4xx\"}} {count}"
        );
        assert!(metrics.contains(&counted), "{metrics}");
    }
}

#[test]
fn a_head_has_at_most_64_kib_over_http_2() {
    let service = Service::start(&["grpc"], RULES);
    for listener in ["api", "grpc"] {
        for (headers, length, status) in
            [(1, 60_000, "200"), (1, 66_000, "431"), (7, 10_000, "431")]
        {
            if listener == "grpc" && status == "200" {
                continue;
            }
            let run = Command::new(python())
                .arg(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/tests/it/service/api/large_head.py"
                ))
                .arg(service.address(listener).to_string())
                .args([headers, length].map(|it: usize| it.to_string()))
                .output()
                .unwrap();
            let output = String::from_utf8_lossy(&run.stdout);
            assert_eq!(
                output.trim(),
                status,
                "{listener} {headers} {length}: {run:?}"
            );
        }
    }
}
