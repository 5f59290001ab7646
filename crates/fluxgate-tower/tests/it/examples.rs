//! The examples, run as programs.

mod customizer;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use fluxgate_testkit::tokens::{TokenKey, claims_of, jwks, unix_now};
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

/// Starts an example with the settings that `configure` adds.
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
    let address = program.wait_for_line("the address", |line| {
        let rest = line.strip_prefix("listening on http://")?;
        rest.split(',').next()?.parse().ok()
    });
    program.wait_for_line("the command to try", |line| {
        line.starts_with("try: ").then_some(())
    });
    (program, address)
}

/// Sends requests of a user and returns the statuses.
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
fn by_header() {
    let (_program, address) = start("by_header", &[]);
    let mut http = Http::new(address);
    let mut ask = |key: &str| http.request("GET", "/", &[("X-API-Key", key)], "");
    for _ in 0..3 {
        assert_eq!(ask("k1").status, 200);
    }
    let denied = ask("k1");
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("content-type"), Some("application/json"));
    // One of three units returns every 20 s.
    let retry: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&retry), "{retry}");
    let expected = format!(r#"{{"error":"slow down","path":"/","retry_in":{retry}}}"#);
    assert_eq!(denied.body, expected);
    assert_eq!(ask("k2").status, 200);
}

#[test]
fn jwt() {
    let key = TokenKey::new("ES256", "a");
    let file = std::env::temp_dir().join(format!("fluxgate-example-{}.json", std::process::id()));
    std::fs::write(&file, jwks([&key])).unwrap();
    let (_program, address) = start("jwt", &[file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    let mut http = Http::new(address);
    let mut ask = |token: &str| {
        let token = format!("Bearer {token}");
        let answer = http.request("GET", "/", &[("Authorization", &token)], "");
        (
            answer.status,
            answer.header("x-ratelimit-limit").map(str::to_owned),
        )
    };
    let claims = claims_of("ann", unix_now());
    let free = claims.replacen('{', r#"{"account":{"plan":"free"},"#, 1);
    for status in [200, 200, 200, 429] {
        assert_eq!(ask(&key.token(&free)), (status, Some("3".into())));
    }
    assert_eq!(ask(&key.token(&claims)), (200, Some("100".into())));
    assert_eq!(ask(&TokenKey::new("ES256", "a").token(&free)), (401, None));
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
    let denied = client
        .check(HealthCheckRequest::default())
        .await
        .unwrap_err();
    assert_eq!(denied.code(), tonic::Code::ResourceExhausted);
    assert!(
        denied
            .message()
            .starts_with("the quota is used up; retry after "),
        "{denied}"
    );
    assert!(denied.metadata().contains_key("retry-after"));
}

#[tokio::test]
async fn tonic_interceptor() {
    let (_program, address) = start("tonic_interceptor", &[]);
    let channel = Endpoint::try_from(format!("http://{address}")).unwrap();
    let channel = channel.connect().await.unwrap();
    let check = async |key: Option<&str>| {
        let mut call = tonic::Request::new(HealthCheckRequest::default());
        if let Some(key) = key {
            call.metadata_mut()
                .insert("x-api-key", key.parse().unwrap());
        }
        HealthClient::new(channel.clone()).check(call).await
    };
    for _ in 0..3 {
        check(Some("k1")).await.unwrap();
    }
    let denied = check(Some("k1")).await.unwrap_err();
    assert_eq!(denied.code(), tonic::Code::ResourceExhausted);
    let millis = denied.metadata().get("grpc-retry-pushback-ms").unwrap();
    let millis = millis.to_str().unwrap();
    // One of three units returns every 20 s.
    assert!(
        (1..=20_000).contains(&millis.parse::<u64>().unwrap()),
        "{millis}"
    );
    let message = format!("the quota is used up; retry after {millis} ms");
    assert_eq!(denied.message(), message);
    check(Some("k2")).await.unwrap();
    let missing = check(None).await.unwrap_err();
    assert_eq!(missing.code(), tonic::Code::Unauthenticated);
}

#[test]
fn remote_while_the_service_is_down() {
    let gone = fluxgate_testkit::ports::free();
    let (_program, address) = start("remote", &[&format!("http://{}", gone.addr())]);
    // The local rules apply.
    assert_eq!(ask(address, "/api/hello", "ann", 4), [200, 200, 200, 429]);
}
