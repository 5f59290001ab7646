//! TLS on both sides of the gateway.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use fluxgate_testkit::{Certificates, Program, wait_for, wait_until};

use super::*;
use crate::support::Dir;

/// A gateway that echoes, in a directory with these certificates.
fn secure(certificates: &Certificates) -> Service {
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

fn curl(service: &Service, ca: &Path, more: &[&str]) -> Output {
    let port = service.address("gateway").port();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "--cacert"]).arg(ca).args(more);
    curl.arg(format!("https://localhost:{port}/x"))
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn both_versions_are_spoken_over_tls_and_plain_http_is_not() {
    let certificates = Certificates::generate();
    let service = secure(&certificates);
    for (flag, first) in [("--http1.1", "HTTP/1.1 200"), ("--http2", "HTTP/2 200")] {
        let answer = text(&curl(&service, &certificates.ca(), &[flag]));
        assert!(answer.starts_with(first), "{answer}");
        assert!(
            answer.contains(r#"["x-forwarded-proto","https"]"#),
            "{answer}"
        );
    }
    let mut plain = client(&service);
    assert!(plain.try_request("GET", "/", &[], "").is_err());
}

#[test]
fn tls_is_spoken_from_1_2_on() {
    let certificates = Certificates::generate();
    let service = secure(&certificates);
    for (version, is_spoken) in [("1.1", false), ("1.2", true), ("1.3", true)] {
        // What curl would not try by itself is asked for too.
        let least = format!("--tlsv{version}");
        let weak = ["--ciphers", "DEFAULT@SECLEVEL=0", "--tls-max", version];
        let more = [weak.as_slice(), &[&least]].concat();
        let answer = curl(&service, &certificates.ca(), &more);
        assert_eq!(answer.status.success(), is_spoken, "{version}: {answer:?}");
    }
}

#[test]
fn new_certificates_are_shown_and_bad_ones_are_not() {
    let old = Certificates::generate();
    let service = secure(&old);
    let trusts =
        |certificates: &Certificates| curl(&service, &certificates.ca(), &[]).status.success();
    assert!(trusts(&old));
    service.dir.write("tls.crt", "nothing of the kind");
    let line = service.wait_for_log("the gateway keeps its certificate");
    assert!(
        line["error"]
            .as_str()
            .unwrap()
            .starts_with("gateway.tls.cert: tls.crt: "),
        "{line}"
    );
    assert!(trusts(&old));
    let new = Certificates::generate();
    copy(&new, &service.dir);
    service.program.signal("HUP");
    wait_until("the new one is shown", || trusts(&new));
    assert!(!trusts(&old));
}

#[test]
fn bad_certificates_at_the_start_are_told() {
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
            "gateway.tls.key: tls.key: no private key in PEM",
        ),
        (
            "tls.key",
            &client_key,
            "gateway.tls.key: tls.key: does not match tls.crt",
        ),
        (
            "tls.crt",
            b"no certificate",
            "gateway.tls.cert: tls.crt: no certificates in PEM",
        ),
    ] {
        dir.write(file, content);
        let run = dir.run(&["run", "--config", "fluxgate.yaml"]);
        assert_eq!(run.code, Some(78), "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
    }
}

#[test]
fn an_upstream_over_tls_must_be_vouched_for() {
    let certificates = Certificates::generate();
    let upstream = secure(&certificates);
    let port = upstream.address("gateway").port();
    for (ca, expected) in [
        (certificates.ca(), 200),
        (Certificates::generate().ca(), 502),
    ] {
        // The authority is read at the start, so its file may go.
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
        let answer = Http::new(address).get("/over-tls");
        assert_eq!(answer.status, expected, "{answer:?}");
        if expected == 200 {
            assert!(answer.body.contains("\"path\":\"/over-tls\""), "{answer:?}");
            assert!(
                answer.body.contains("[\"x-forwarded-proto\",\"https\"]"),
                "{answer:?}"
            );
        }
    }
}
