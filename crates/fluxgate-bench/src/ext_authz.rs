//! `Check` of external authorization, compared with `ShouldRateLimit` of the same service, which
//! counts the same user by a rule like it. The head is one that Envoy sends for a browser.

use std::net::SocketAddr;

use fluxgate_testkit::Http;

use crate::grpc::{self, ask, field, frame};
use crate::load::compare;
use crate::report::Report;
use crate::service;
use crate::service::TempDir;

const METHOD: &str = "/envoy.service.auth.v3.Authorization/Check";
const YARDSTICK: &str = "ShouldRateLimit of the same service";

/// The bands do not run out during the benchmark.
const CONFIG: &str = r#"
filters: { main: { rule_set: pages, trusted_proxies: ["10.0.0.0/8"] } }
rule_sets:
  api:
    rules:
      - { id: per-user, key: ["attr:user"], bands: [ { id: burst, capacity: 100000000, window: 366d } ] }
  pages:
    rules:
      - { id: per-user, scope: per_user, bands: [ { id: burst, capacity: 100000000, window: 366d } ] }
"#;

pub(crate) fn run(report: &mut Report) {
    let dir = TempDir::new("grpc-ext-authz");
    let (check, rate_limit) = (
        dir.file("check", request()),
        dir.file("request", grpc::request()),
    );
    let Some(service) = service::start(&dir, &["api", "grpc"], CONFIG) else {
        return;
    };
    let address = service.address("grpc");
    compare(
        report,
        "grpc-ext-authz",
        YARDSTICK,
        || {
            let before = remaining(service.address("api"));
            let run = ask(address, METHOD, &dir, &check);
            let charged = before - remaining(service.address("api"));
            assert!(charged > grpc::REQUESTS - 1_000, "{charged} were charged");
            run
        },
        || ask(address, grpc::METHOD, &dir, &rate_limit),
    );
}

/// What the user has left.
#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
fn remaining(api: SocketAddr) -> u64 {
    let path = "/v1/state?rule_set=pages&rule=per-user&identity=user-00000001";
    let answer = Http::new(api).get(path);
    let (_, rest) = answer.body.split_once("\"remaining\":").unwrap();
    let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap();
    rest[..end].parse().unwrap()
}

/// A `CheckRequest` in a gRPC frame.
fn request() -> Vec<u8> {
    let lines: [(&str, &str); 13] = [
        (":authority", "shop.example.com"),
        (":path", "/api/orders/1047?expand=items"),
        (":method", "GET"),
        (":scheme", "https"),
        (
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        ),
        ("accept", "application/json"),
        ("accept-language", "en-US,en;q=0.5"),
        ("accept-encoding", "gzip, deflate, br"),
        ("referer", "https://shop.example.com/orders"),
        ("x-user-id", "user-00000001"),
        ("x-forwarded-for", "192.0.2.7"),
        ("x-forwarded-proto", "https"),
        ("x-request-id", "0a4b8f3c-64a5-4b43-9a52-6a3f0c9d7b11"),
    ];
    let lines = lines.map(|(name, value)| {
        field(
            1,
            &[field(1, name.as_bytes()), field(3, value.as_bytes())].concat(),
        )
    });
    let http = [
        field(2, b"GET"),
        field(4, b"/api/orders/1047?expand=items"),
        field(5, b"shop.example.com"),
        field(6, b"https"),
        field(10, b"HTTP/1.1"),
        field(13, &lines.concat()),
    ];
    let source = field(1, &field(1, &field(2, b"192.0.2.7")));
    let attributes = [field(1, &source), field(4, &field(2, &http.concat()))];
    frame(field(1, &attributes.concat()))
}
