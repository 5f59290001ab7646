//! HTTP/2 from clients and HTTP/1.1 to upstreams, with curl as an independent client.

use std::process::Command;

use super::*;

/// Runs curl over HTTP/2 and returns the head and the body of the response.
fn curl(arguments: &[&str]) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "--http2-prior-knowledge"]);
    let output = curl.args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn requests_over_http2_are_forwarded() {
    let upstream = Upstream::with_body("ok");
    let service = gateway_to(&[&upstream], "");
    let url = format!("http://{}/x?q=1", service.address("gateway"));
    let response = curl(&[&url, "-d", "hello", "-H", "Cookie: a=1"]);
    assert!(response.starts_with("HTTP/2 200"), "{response}");
    assert!(response.ends_with("ok"), "{response}");
    let request = upstream.only_request();
    assert_eq!(request.request_line(), "POST /x?q=1 HTTP/1.1");
    assert_eq!(request.body, b"hello");
    assert_eq!(
        request.header("host"),
        [service.address("gateway").to_string()]
    );
    assert_eq!(request.header("content-length"), ["5"]);
    let response = curl(&[&url, "-T", "/proc/self/status"]);
    assert!(response.starts_with("HTTP/2 200"), "{response}");
    assert!(upstream.requests()[1].is_complete);
}

#[test]
fn requests_over_http2_are_limited() {
    let upstream = Upstream::with_body("ok");
    let filters = "filters: { f: { rule_set: s } }\n";
    let routes = [route("r", "filters: [f],", &[&upstream])];
    let service = start(&routes, &format!("{filters}{ONE_A_MINUTE}"));
    let url = format!("http://{}/", service.address("gateway"));
    for status_line in ["HTTP/2 200", "HTTP/2 429"] {
        let response = curl(&[&url]);
        assert!(response.starts_with(status_line), "{response}");
    }
    assert_eq!(upstream.requests().len(), 1);
}
