//! `fluxgate health`, as containers and units ask it.

use std::fs;
use std::net::TcpListener;

use fluxgate_testkit::{Certificates, ports, wait_until};

use crate::service::Service;
use crate::support::{Dir, Run, TWO_A_SECOND};

const CONFIG: [&str; 2] = ["--config", "fluxgate.yaml"];

/// Starts a service whose API listens on `address`, in a directory with these certificates.
fn start(dir: Dir, listen: &str, rest: &str) -> Service {
    dir.write(
        "fluxgate.yaml",
        format!("listen: {{ api: {listen} }}\n{rest}"),
    );
    Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1)
}

fn health(dir: &Dir, more: &[&str]) -> Run {
    // A loaded machine may take longer than the default.
    let patient: &[&str] = if more.contains(&"--timeout") {
        &[]
    } else {
        &["--timeout", "20s"]
    };
    dir.run(&[&["health"][..], more, patient].concat())
}

#[track_caller]
fn assert_healthy(dir: &Dir, more: &[&str], url: &str) {
    let run = health(dir, more);
    assert_eq!(run.lines(), [format!("{url} is ready")]);
}

#[track_caller]
fn assert_fails(dir: &Dir, more: &[&str], code: i32, message: &str) {
    let run = health(dir, more);
    assert_eq!((run.code, &*run.stdout), (Some(code), ""), "{run:?}");
    assert!(run.stderr.contains(message), "{run:?}");
}

#[test]
fn a_service_is_healthy_from_its_start_to_its_end() {
    let port = ports::free();
    // The address of a container: loopback is part of it.
    let listen = format!("':{}'", port.number());
    let service = start(Dir::new(), &listen, TWO_A_SECOND);
    service.wait_until_ready();
    let (dir, url) = (&service.dir, format!("http://{}", port.addr()));
    assert_healthy(dir, &CONFIG, &url);
    assert_healthy(dir, &["fluxgate.yaml"], &url);
    // Without a config, options and the environment change the demo.
    let set = format!("listen.api='{}'", port.addr());
    assert_healthy(dir, &["--set", &set], &url);
    assert_healthy(dir, &["--server", &url], &url);
    let run = health(dir, &["--live", "--server", &url]);
    assert_eq!(run.lines(), [format!("{url} is alive")]);

    // The service refuses such a change and goes on, so its check must not restart it.
    let config = dir.read("fluxgate.yaml");
    dir.write(
        "fluxgate.yaml",
        config.replace("window: 1s", "window: never"),
    );
    assert_eq!(dir.run(&["validate", "fluxgate.yaml"]).code, Some(78));
    assert_healthy(dir, &CONFIG, &url);

    service.program.signal("TERM");
    assert!(service.program.wait().success());
    assert_fails(dir, &CONFIG, 69, &format!("{url}: cannot connect: "));
}

#[test]
fn a_service_without_rules_is_alive_and_not_ready() {
    let (port, nobody) = (ports::free(), ports::free());
    let rules = format!(
        "rules_from: {{ http: {{ url: 'http://{}' }} }}\n",
        nobody.addr()
    );
    let service = start(Dir::new(), &format!("'{}'", port.addr()), &rules);
    let message = "not ready: 503: the rules are not loaded yet";
    assert_fails(&service.dir, &CONFIG, 69, message);
    let run = health(&service.dir, &[&CONFIG[..], &["--live"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
}

#[test]
fn a_service_that_does_not_answer_is_unhealthy_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = Dir::new();
    let address = silent.local_addr().unwrap();
    dir.write("fluxgate.yaml", format!("listen: {{ api: '{address}' }}\n"));
    let options = [&CONFIG[..], &["--timeout", "300ms"]].concat();
    assert_fails(&dir, &options, 69, "no answer within 300ms");
}

#[test]
fn the_certificate_of_the_config_is_the_one_that_is_accepted() {
    let (certificates, others) = (Certificates::generate(), Certificates::generate());
    let dir = Dir::new();
    for (from, to) in [
        (certificates.server_cert(), "tls.crt"),
        (certificates.server_key(), "tls.key"),
        (certificates.ca(), "ca.pem"),
        (certificates.client_cert(), "client.crt"),
        (certificates.client_key(), "client.key"),
        (others.server_cert(), "other.crt"),
    ] {
        fs::copy(from, dir.path(to)).unwrap();
    }
    let port = ports::free();
    let tls = "tls: { cert: tls.crt, key: tls.key }";
    let listen = format!("{{ address: '{}', {tls} }}", port.addr());
    let service = start(dir, &listen, TWO_A_SECOND);
    let (dir, url) = (&service.dir, format!("https://{}", port.addr()));
    wait_until("the service is healthy", || {
        health(dir, &CONFIG).code == Some(0)
    });
    // The system knows neither its name nor its authority.
    assert_healthy(dir, &CONFIG, &url);
    assert_fails(dir, &["--server", &url], 69, "UnknownIssuer");
    assert_healthy(dir, &["--server", &url, "--ca", "ca.pem"], &url);
    assert_healthy(dir, &[&CONFIG[..], &["--ca", "ca.pem"]].concat(), &url);
    let other = ["--set", "listen.api.tls.cert=other.crt"];
    let message = "the server presents another certificate";
    assert_fails(dir, &[&CONFIG[..], &other].concat(), 69, message);
    let missing = ["--set", "listen.api.tls.cert=missing.crt"];
    assert_fails(dir, &[&CONFIG[..], &missing].concat(), 78, "missing.crt");
    service.program.signal("TERM");
    assert!(service.program.wait().success());

    // Clients need a certificate, this one too.
    let config = dir.read("fluxgate.yaml");
    let config = config.replace("key: tls.key", "key: tls.key, client_ca: ca.pem");
    dir.write("fluxgate.yaml", config);
    let _service = fluxgate_testkit::Program::start(env!("CARGO_BIN_EXE_fluxgate"), |command| {
        command.args(["run", "--config", "fluxgate.yaml"]);
        command.current_dir(dir.path(""));
    });
    let client = ["--cert", "client.crt", "--key", "client.key"];
    let client = [&CONFIG[..], &client].concat();
    wait_until("the service is healthy", || {
        health(dir, &client).code == Some(0)
    });
    let message = "needs a client certificate; name one with `--cert` and `--key`";
    assert_fails(dir, &CONFIG, 78, message);
    assert_fails(dir, &CONFIG, 78, "fluxgate.yaml:1:");
}

#[test]
fn a_config_without_a_known_address_cannot_be_asked() {
    let dir = Dir::new();
    for (config, code, message) in [
        ("listen: { grpc: ':1' }", 78, "`listen.api` is not set"),
        (
            "listen: { api: ':0' }",
            78,
            "fluxgate.yaml:1:16: `listen.api` has port 0",
        ),
        ("rule_sets: {}", 78, "`listen.api` is not set"),
        (
            "listen: { api: here }",
            78,
            "fluxgate.yaml:1:16: `api` must be an address",
        ),
        ("listen: [", 78, "fluxgate.yaml:"),
    ] {
        dir.write("fluxgate.yaml", config);
        assert_fails(&dir, &CONFIG, code, message);
    }
    assert_fails(&dir, &["--config", "missing.yaml"], 66, "missing.yaml");
    assert_fails(&dir, &["--server", "here"], 65, "--server");
    assert_fails(&dir, &["--timeout", "soon"], 2, "not a duration");
    assert_fails(
        &dir,
        &["--config", "f", "--server", "http://x"],
        2,
        "cannot be used with",
    );
}
