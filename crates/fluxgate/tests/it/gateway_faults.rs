//! Faults and attacks that must not break the gateway, seen from the wire on both sides.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use fluxgate_testkit::{RawClient, RawUpstream, timed, wait_for, wait_until};

use crate::service::Service;
use crate::support::{project_file, python};

mod ambiguous_paths;
mod bodies;
mod counting_upstream;
mod drain;
mod http2;
mod identity_headers;
mod idle_connections;
mod log_injection;
pub(crate) mod memory;
mod proxy_protocol;
mod readings;
mod responses;
mod slow_clients;
mod smuggling;
mod spoofed_addresses;
mod tokens;
mod unfinished_streams;
mod upgrades;
mod upstreams;
mod waiting;
mod websocket;

/// A complete response of an upstream.
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// No test sets a shorter timeout for a request or its head.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(200);

/// Header lines that select the transport of a request. The fast path does not handle `TE`.
const FAST_PATH: &str = "";
const HYPER: &str = "TE: trailers\r\n";
const TRANSPORTS: [&str; 2] = [FAST_PATH, HYPER];

/// Starts a gateway that forwards everything to these upstreams. `settings` are further
/// lines of the section `gateway`, each indented by two spaces.
fn gateway(upstreams: &[SocketAddr], settings: &str) -> Service {
    Service::start(&["gateway"], &config(upstreams, "", settings))
}

/// Returns the section `gateway` with one route for everything. `filters` names the
/// filters of the route.
fn config(upstreams: &[SocketAddr], filters: &str, settings: &str) -> String {
    let upstreams: Vec<_> = upstreams
        .iter()
        .map(|address| format!("\"http://{address}\""))
        .collect();
    let upstreams = upstreams.join(", ");
    format!(
        "gateway:\n  routes:\n    - {{ id: all, match: {{ path: [\"/**\"] }}, \
         upstreams: [{upstreams}], filters: [{filters}] }}\n{settings}"
    )
}

/// Connects to the gateway.
#[track_caller]
fn client(service: &Service) -> RawClient {
    RawClient::connect(service.address("gateway"))
}

/// Asserts that the gateway still serves other clients.
#[track_caller]
fn assert_serves(service: &Service) {
    wait_until("another client is served", || {
        let (response, took) = timed(|| client(service).get("/others"));
        let served = response.as_ref().map(|it| (it.status, it.text()));
        let is_served = served.is_ok_and(|it| it == (200, "ok".to_owned()));
        // A busy machine may take longer than the timeouts of some tests, and the gateway is
        // right to close such a connection.
        let is_late = took >= SHORTEST_TIMEOUT;
        assert!(is_served || is_late, "{response:?} after {took:?}");
        is_served
    });
}

/// Asserts that the gateway serves other clients within two seconds. A busy machine may stall,
/// but not for half of the requests.
#[track_caller]
fn assert_serves_promptly(service: &Service) {
    let mut times: Vec<_> = (0..21)
        .map(|_| timed(|| assert_serves(service)).1)
        .collect();
    times.sort_unstable();
    assert!(times[10] < Duration::from_secs(2), "{times:?}");
}

/// Returns a client that has been served. A busy machine may leave a new connection silent for
/// longer than the timeout of heads, so this tries again.
#[track_caller]
fn served_client(service: &Service) -> RawClient {
    wait_for("a client is served", || {
        let mut client = client(service);
        let response = client.get("/before");
        response.is_ok_and(|it| it.status == 200).then_some(client)
    })
}

/// Starts an upstream that responds to every complete request with [`OK`].
fn ok_upstream() -> RawUpstream {
    RawUpstream::answering(OK)
}

/// Returns whether at least `count` upstream connections carried a request with this
/// line, complete or not, and all of them are closed.
fn are_closed(upstream: &RawUpstream, line: &str, count: usize) -> bool {
    let received = upstream.received();
    let has_line = |bytes: &[u8]| bytes.windows(line.len()).any(|it| it == line.as_bytes());
    let carriers: Vec<_> = received.iter().filter(|it| has_line(&it.bytes)).collect();
    carriers.len() >= count && carriers.iter().all(|it| it.is_over)
}

/// Returns a command that runs a Python script of these tests.
fn script(name: &str) -> Command {
    let path = format!("crates/fluxgate/tests/it/gateway_faults/{name}");
    let mut command = Command::new(python());
    command.arg(project_file(&path));
    // Keeps `__pycache__` out of the source tree.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs a command to its end and returns its output.
#[track_caller]
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let [out, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "{command:?}: {out}{errors}");
    out.into_owned()
}
