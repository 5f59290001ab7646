//! The examples, started as their readers start them.

mod customizer;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use fluxgate_testkit::{Http, Program};
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Starts an example on a free port.
fn start(name: &str, arguments: &[&str]) -> (Program, SocketAddr) {
    start_with(name, |command| {
        command.args(arguments);
    })
}

/// The same with what `configure` adds.
fn start_with(name: &str, configure: impl FnOnce(&mut Command)) -> (Program, SocketAddr) {
    let tests = std::env::current_exe().unwrap();
    let target = tests.parent().and_then(|deps| deps.parent()).unwrap();
    let file: PathBuf = target.join("examples").join(name);
    let shown = file.display();
    assert!(
        file.is_file(),
        "{shown} is missing: cargo build -p fluxgate-tower --examples"
    );
    let program = Program::start(&file, |command| {
        configure(command.arg("127.0.0.1:0"));
    });
    let address = program.wait_for_line("where it listens", |line| {
        let rest = line.strip_prefix("listening on http://")?;
        rest.split(',').next()?.parse().ok()
    });
    program.wait_for_line("what to try", |line| {
        line.starts_with("try: ").then_some(())
    });
    (program, address)
}

/// The statuses of requests of a user.
fn ask(address: SocketAddr, path: &str, user: &str, count: usize) -> Vec<u16> {
    let mut http = Http::new(address);
    let answers = (0..count).map(|_| {
        let answer = http.request("GET", path, &[("X-User-Id", user)], "");
        if answer.status == 429 {
            assert_eq!(
                answer.header("content-type"),
                Some("application/problem+json")
            );
            assert!(answer.header("retry-after").is_some());
        }
        answer.status
    });
    answers.collect()
}

#[test]
fn axum() {
    let (_program, address) = start("axum", &[]);
    assert_eq!(ask(address, "/api/hello", "ann", 4), [200, 200, 200, 429]);
    assert_eq!(ask(address, "/api/hello", "bob", 1), [200]);
    assert_eq!(ask(address, "/api/health", "ann", 5), [200; 5]);
    assert_eq!(ask(address, "/wait", "ann", 2), [200, 200]);
}

#[test]
fn hyper() {
    let (_program, address) = start("hyper", &[]);
    assert_eq!(ask(address, "/", "ann", 4), [200, 200, 200, 429]);
}

#[tokio::test]
async fn tonic() {
    let (_program, address) = start("tonic", &[]);
    let channel = Endpoint::try_from(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    for _ in 0..3 {
        let answer = client.check(HealthCheckRequest::default()).await.unwrap();
        assert!(answer.metadata().contains_key("x-ratelimit-remaining"));
    }
    let refused = client
        .check(HealthCheckRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    assert!(
        refused
            .message()
            .starts_with("the quota is used up; retry after "),
        "{refused}"
    );
    assert!(refused.metadata().contains_key("retry-after"));
}

#[test]
fn remote_without_its_service() {
    let gone = fluxgate_testkit::ports::free();
    let (_program, address) = start("remote", &[&format!("http://{}", gone.addr())]);
    // The rules that hold meanwhile.
    assert_eq!(ask(address, "/api/hello", "ann", 4), [200, 200, 200, 429]);
}
