//! What must not break the gateway: looked at from the wire, on both sides of it.

use std::net::SocketAddr;
use std::process::Command;

use fluxgate_testkit::{RawClient, RawUpstream};

use crate::service::Service;
use crate::support::{project_file, python};

mod answers;
mod bodies;
mod connections;
mod disguise;
mod drain;
mod holding_upstream;
mod http2;
mod memory;
mod slow_clients;
mod smuggling;
mod spelled_headers;
mod spelled_paths;
mod unfinished_streams;
mod upgrades;
mod upstreams;
mod waiting;
mod websocket;

/// A whole answer of an upstream.
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A gateway that passes everything to these upstreams, with more lines of its
/// section (each with two spaces before it).
fn gateway(upstreams: &[SocketAddr], more: &str) -> Service {
    Service::start(&["gateway"], &config(upstreams, "", more))
}

/// The section `gateway` with one route for everything. `filters` may name the
/// filters of the route.
fn config(upstreams: &[SocketAddr], filters: &str, more: &str) -> String {
    let upstreams: Vec<_> = upstreams
        .iter()
        .map(|address| format!("\"http://{address}\""))
        .collect();
    let upstreams = upstreams.join(", ");
    format!(
        "gateway:\n  routes:\n    - {{ id: all, match: {{ path: [\"/**\"] }}, \
         upstreams: [{upstreams}], filters: [{filters}] }}\n{more}"
    )
}

/// A connection to the gateway.
#[track_caller]
fn client(service: &Service) -> RawClient {
    RawClient::connect(service.address("gateway"))
}

/// That the gateway still serves others.
#[track_caller]
fn assert_serves(service: &Service) {
    let answer = client(service).get("/others").unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
}

/// An upstream that answers every whole request with [`OK`].
fn ok_upstream() -> RawUpstream {
    RawUpstream::answering(OK)
}

/// Whether at least so many connections have brought a request that begins like
/// this, whole or not, and all of them are over.
fn are_let_go(upstream: &RawUpstream, line: &str, count: usize) -> bool {
    let received = upstream.received();
    let has_it = |bytes: &[u8]| bytes.windows(line.len()).any(|it| it == line.as_bytes());
    let begun: Vec<_> = received.iter().filter(|it| has_it(&it.bytes)).collect();
    begun.len() >= count && begun.iter().all(|it| it.is_over)
}

/// A script of these tests, to be run by Python.
fn script(name: &str) -> Command {
    let path = format!("crates/fluxgate/tests/it/gateway_faults/{name}");
    let mut command = Command::new(python());
    command.arg(project_file(&path));
    // It would leave its notes beside the sources.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs a command to its end and gives back what it wrote.
#[track_caller]
fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let [out, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "{command:?}: {out}{errors}");
    out.into_owned()
}
