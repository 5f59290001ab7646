//! HTTP/2 in, HTTP/1.1 out; with curl, which knows nothing of us.

use std::process::Command;

use super::*;

/// What curl says of a request.
fn curl(arguments: &[&str]) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "--http2-prior-knowledge"]);
    let output = curl.args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn requests_over_http2_are_forwarded() {
    let upstream = Upstream::saying("ok");
    let service = before(&[&upstream], "");
    let url = format!("http://{}/x?q=1", service.address("gateway"));
    let answer = curl(&[&url, "-d", "hello", "-H", "Cookie: a=1"]);
    assert!(answer.starts_with("HTTP/2 200"), "{answer}");
    assert!(answer.ends_with("ok"), "{answer}");
    let seen = upstream.only();
    assert_eq!(seen.line(), "POST /x?q=1 HTTP/1.1");
    assert_eq!(seen.body, b"hello");
    assert_eq!(
        seen.header("host"),
        [service.address("gateway").to_string()]
    );
    assert_eq!(seen.header("content-length"), ["5"]);
    let answer = curl(&[&url, "-T", "/proc/self/status"]);
    assert!(answer.starts_with("HTTP/2 200"), "{answer}");
    assert!(upstream.seen()[1].whole);
}

#[test]
fn limits_hold_over_http2() {
    let upstream = Upstream::saying("ok");
    let filters = "filters: { f: { rule_set: s } }\n";
    let routes = [route("r", "filters: [f],", &[&upstream])];
    let service = start(&routes, &format!("{filters}{ONE_A_MINUTE}"));
    let url = format!("http://{}/", service.address("gateway"));
    for first in ["HTTP/2 200", "HTTP/2 429"] {
        let answer = curl(&[&url]);
        assert!(answer.starts_with(first), "{answer}");
    }
    assert_eq!(upstream.seen().len(), 1);
}
