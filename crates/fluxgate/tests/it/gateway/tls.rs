//! TLS on both sides of the gateway.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use fluxgate_testkit::{Certificates, Program, wait_for, wait_until};

use super::*;
use crate::support::Dir;

/// Starts a gateway with TLS and an echo upstream, in a directory with these certificates.
fn start_tls(certificates: &Certificates) -> Service {
    let dir = Dir::new();
    copy(certificates, &dir);
    Service::start_in(
        dir,
        &["gateway"],
        "gateway: { routes: [ { id: r, upstreams: [echo] } ], tls: { cert: tls.crt, key: tls.key } }\n",
    )
}

fn copy(certificates: &Certificates, dir: &Dir) {
    fs::copy(certificates.server_cert(), dir.path("tls.crt")).unwrap();
    fs::copy(certificates.server_key(), dir.path("tls.key")).unwrap();
}

fn curl(service: &Service, ca: &Path, options: &[&str]) -> Output {
    let port = service.address("gateway").port();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "--cacert"]).arg(ca).args(options);
    curl.arg(format!("https://localhost:{port}/x"))
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn tls_serves_http1_and_http2_and_rejects_unencrypted_clients() {
    let certificates = Certificates::generate();
    let service = start_tls(&certificates);
    for (flag, status_line) in [("--http1.1", "HTTP/1.1 200"), ("--http2", "HTTP/2 200")] {
        let response = text(&curl(&service, &certificates.ca(), &[flag]));
        assert!(response.starts_with(status_line), "{response}");
        assert!(
            response.contains(r#"["x-forwarded-proto","https"]"#),
            "{response}"
        );
    }
    let mut unencrypted = client(&service);
    assert!(unencrypted.try_request("GET", "/", &[], "").is_err());
}

#[test]
fn tls_1_2_and_later_are_supported() {
    let certificates = Certificates::generate();
    let service = start_tls(&certificates);
    for (version, is_supported) in [("1.1", false), ("1.2", true), ("1.3", true)] {
        // By default curl does not offer old versions.
        let min = format!("--tlsv{version}");
        let weak = ["--ciphers", "DEFAULT@SECLEVEL=0", "--tls-max", version];
        let options = [weak.as_slice(), &[&min]].concat();
        let output = curl(&service, &certificates.ca(), &options);
        assert_eq!(
            output.status.success(),
            is_supported,
            "{version}: {output:?}"
        );
    }
}

#[test]
fn new_certificates_are_used_and_invalid_ones_are_not() {
    let old = Certificates::generate();
    let service = start_tls(&old);
    let trusts =
        |certificates: &Certificates| curl(&service, &certificates.ca(), &[]).status.success();
    assert!(trusts(&old));
    service.dir.write("tls.crt", "not a certificate");
    let line = service.wait_for_log("the gateway keeps its certificate");
    assert!(
        line["error"]
            .as_str()
            .unwrap()
            .starts_with("`gateway.tls.cert`: tls.crt: "),
        "{line}"
    );
    assert!(trusts(&old));
    let new = Certificates::generate();
    copy(&new, &service.dir);
    service.program.signal("HUP");
    wait_until("the new certificate is used", || trusts(&new));
    assert!(!trusts(&old));
}

#[test]
fn invalid_certificates_prevent_the_start() {
    let certificates = Certificates::generate();
    let dir = Dir::new();
    copy(&certificates, &dir);
    let config = "listen: { gateway: \"127.0.0.1:0\" }\n\
         gateway: { routes: [ { id: r, upstreams: [echo] } ], tls: { cert: tls.crt, key: tls.key } }\n";
    dir.write("fluxgate.yaml", config);
    let client_key = fs::read(certificates.client_key()).unwrap();
    for (file, content, expected) in [
        (
            "tls.key",
            &b"no key"[..],
            "fluxgate.yaml:2:81: `gateway.tls.key`: tls.key: no private key in PEM",
        ),
        (
            "tls.key",
            &client_key,
            "fluxgate.yaml:2:81: `gateway.tls.key`: tls.key: does not match tls.crt",
        ),
        (
            "tls.crt",
            b"no certificate",
            "fluxgate.yaml:2:67: `gateway.tls.cert`: tls.crt: no certificates in PEM",
        ),
    ] {
        dir.write(file, content);
        let run = dir.run(&["run", "--config", "fluxgate.yaml"]);
        assert_eq!(run.code, Some(78), "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
    }
}

#[test]
fn the_certificate_of_an_https_upstream_is_verified() {
    let certificates = Certificates::generate();
    let upstream = start_tls(&certificates);
    let port = upstream.address("gateway").port();
    for (ca, expected) in [
        (certificates.ca(), 200),
        (Certificates::generate().ca(), 502),
    ] {
        // The gateway reads the CA file once, at the start.
        let dir = Dir::new();
        dir.write("ca.pem", fs::read(&ca).unwrap_or_default());
        dir.write(
            "fluxgate.yaml",
            format!(
                "listen: {{ gateway: \"127.0.0.1:0\" }}\n\
                 gateway: {{ routes: [ {{ id: r, upstreams: [\"https://localhost:{port}\"] }} ] }}\n"
            ),
        );
        let program = Program::start(env!("CARGO_BIN_EXE_fluxgate"), |command| {
            command.args(["run", "--config", "fluxgate.yaml"]);
            command
                .current_dir(dir.path(""))
                .env("SSL_CERT_FILE", "ca.pem");
        });
        let address = wait_for("the gateway listens", || {
            let lines = program.lines();
            let line = lines.iter().find(|line| line.contains("\"listening\""))?;
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            line["address"].as_str()?.parse().ok()
        });
        let response = Http::new(address).get("/over-tls");
        assert_eq!(response.status, expected, "{response:?}");
        if expected == 200 {
            assert!(
                response.body.contains("\"path\":\"/over-tls\""),
                "{response:?}"
            );
            assert!(
                response.body.contains("[\"x-forwarded-proto\",\"https\"]"),
                "{response:?}"
            );
        }
    }
}
