//! Common HTTP/2 clients.

use std::process::Command;

use fluxgate_testkit::Certificates;

use super::super::{config, gateway, ok_upstream};
use super::output_of;
use crate::service::Service;

#[test]
fn curl_is_served() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    let url = format!("http://{}/x", service.address("gateway"));
    for (option, version) in [
        ("--http2-prior-knowledge", "2"),
        ("--http1.1", "1.1"),
        ("--http1.0", "1"),
    ] {
        let mut curl = Command::new("curl");
        curl.args(["-sS", option, "-w", " %{http_code} %{http_version}", &url]);
        assert_eq!(output_of(&mut curl), format!("ok 200 {version}"));
    }
    // Offers an upgrade to HTTP/2, which the gateway may ignore.
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--http2", "-d", "hello", "-w", " %{http_code}", &url]);
    assert_eq!(output_of(&mut curl), "ok 200");
}

#[test]
fn curl_is_served_over_tls() {
    let upstream = ok_upstream();
    let certificates = Certificates::generate();
    let tls = format!(
        "  tls: {{ cert: {}, key: {} }}\n",
        certificates.server_cert().display(),
        certificates.server_key().display()
    );
    let service = Service::start(&["gateway"], &config(&[upstream.address()], "", &tls));
    let url = format!("https://localhost:{}/x", service.address("gateway").port());
    for (option, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let mut curl = Command::new("curl");
        curl.arg("--cacert").arg(certificates.ca());
        curl.args([
            "-sS",
            option,
            "-d",
            "hello",
            "-w",
            " %{http_code} %{http_version}",
            &url,
        ]);
        assert_eq!(output_of(&mut curl), format!("ok 200 {version}"));
    }
    let requests = upstream.requests();
    assert!(requests.iter().all(|it| it.body == b"hello"));
    assert!(
        requests
            .iter()
            .all(|it| it.values("x-forwarded-proto") == ["https"])
    );
}

#[test]
fn nghttp_is_served() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    let url = format!("http://{}/x", service.address("gateway"));
    let mut nghttp = Command::new("nghttp");
    nghttp.args(["-v", "-m", "20", &url]);
    let output = output_of(&mut nghttp);
    assert_eq!(output.matches(":status: 200").count(), 20, "{output}");
}

#[test]
fn h2load_loses_no_request() {
    let upstream = ok_upstream();
    let service = gateway(&[upstream.address()], "");
    let url = format!("http://{}/x", service.address("gateway"));
    let mut load = Command::new("h2load");
    load.args(["-n", "5000", "-c", "16", "-m", "16", &url]);
    let output = output_of(&mut load);
    assert!(
        output.contains("5000 succeeded, 0 failed, 0 errored"),
        "{output}"
    );
    assert!(output.contains("5000 2xx"), "{output}");
    assert_eq!(upstream.requests().len(), 5000);
}
