//! `ShouldRateLimit`, compared with nginx, which answers the same requests with a constant.
//! `h2load` sends the requests.

use std::net::SocketAddr;
use std::path::Path;

use fluxgate_testkit::Http;

use crate::load::{Run, compare};
use crate::nginx::Nginx;
use crate::report::Report;
use crate::service::TempDir;
use crate::{h2load, service};

pub(crate) const REQUESTS: u64 = 200_000;
const CONNECTIONS: u64 = 4;
const STREAMS: u64 = 16;

pub(crate) const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const YARDSTICK: &str = "nginx, a constant to the same POST over h2c";

/// The band does not run out during the benchmark and refills one unit every three seconds.
const RULES: &str = r#"
rule_sets:
  api:
    rules:
      - { id: per-user, key: ["attr:user"], bands: [ { id: burst, capacity: 10000000, window: 366d } ] }
"#;

pub(crate) fn run(report: &mut Report) {
    let dir = TempDir::new("grpc");
    let body = dir.file("request", request());
    let Some(ours) = service::start(&dir, &["api", "grpc"], RULES) else {
        return;
    };
    // The answer is as long as ours.
    let nginx = Nginx::start(&dir, "http2", "application/grpc", &"x".repeat(230));
    compare(
        report,
        "grpc",
        YARDSTICK,
        || {
            let before = remaining(ours.address("api"));
            let run = ask(ours.address("grpc"), METHOD, &dir, &body);
            let charged = before - remaining(ours.address("api"));
            // Units that refill during the run are not seen as charged.
            let all = charged.abs_diff(REQUESTS) < 100;
            assert!(all, "{charged} of {REQUESTS} were charged");
            run
        },
        || ask(nginx.address(), METHOD, &dir, &body),
    );
}

/// One run of h2load, which calls a method.
pub(crate) fn ask(address: SocketAddr, method: &str, dir: &TempDir, body: &Path) -> Run {
    let (requests, connections) = (REQUESTS.to_string(), CONNECTIONS.to_string());
    let (streams, body) = (STREAMS.to_string(), body.display().to_string());
    let url = format!("http://{address}{method}");
    let load = ["-n", &requests, "-c", &connections, "-m", &streams];
    let headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"];
    let arguments = [&load[..], &headers, &["-d", &body, &url]].concat();
    h2load::ask(dir, &arguments, &format!("{REQUESTS} succeeded"))
}

/// What the user has left.
#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
fn remaining(api: SocketAddr) -> u64 {
    let look = r#"{"attributes":{"user":"user-00000001"},"cost":0,"peek":true}"#;
    let answer = Http::new(api).post("/v1/check", look);
    let (_, rest) = answer.body.split_once("\"remaining\":").unwrap();
    let (number, _) = rest.split_once(',').unwrap();
    number.parse().unwrap()
}

/// A `RateLimitRequest` in a gRPC frame: one descriptor of one entry.
pub(crate) fn request() -> Vec<u8> {
    let entry = [field(1, b"user"), field(2, b"user-00000001")].concat();
    frame([field(1, b"api"), field(2, &field(1, &entry))].concat())
}

/// A field of a message.
pub(crate) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(bytes);
    field
}

/// A message in a gRPC frame.
pub(crate) fn frame(message: Vec<u8>) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame
}
