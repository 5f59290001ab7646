//! The gateway between real clients and real upstreams.

mod access_log;
mod balancing;
mod demo;
mod ejection;
mod errors;
mod forwarding;
mod grpc;
mod health_checks;
mod http2;
mod http2_upstreams;
mod limits;
mod outages;
mod reload;
mod retries;
mod rewriting;
mod routing;
mod slots;
mod streaming;
mod tls;
mod transports;
mod upgrades;
pub(crate) mod upstream;

use fluxgate_testkit::{Answer, Http};

use crate::service::Service;
use upstream::Upstream;

/// One request a minute for each address.
const ONE_A_MINUTE: &str = "rule_sets: { s: { rules: [ { id: r, scope: per_ip, bands: [ { capacity: 1, window: 1m } ] } ] } }\n";

/// Starts a gateway with these routes and the other sections of `config`.
fn start(routes: &[String], config: &str) -> Service {
    let routes: Vec<_> = routes
        .iter()
        .map(|route| format!("    - {route}\n"))
        .collect();
    let routes = routes.concat();
    Service::start(
        &["gateway"],
        &format!("{config}gateway:\n  routes:\n{routes}"),
    )
}

/// Starts a gateway with one route to these upstreams; `settings` are lines under
/// `gateway`.
fn gateway_to(upstreams: &[&Upstream], settings: &str) -> Service {
    let route = route("all", "", upstreams);
    let config = format!("gateway:\n{settings}  routes:\n    - {route}\n");
    Service::start(&["gateway"], &config)
}

/// Returns a route to these upstreams with further `fields`.
fn route(id: &str, fields: &str, upstreams: &[&Upstream]) -> String {
    let urls: Vec<_> = upstreams.iter().map(|upstream| upstream.url()).collect();
    format!("{{ id: {id}, {fields} upstreams: {urls:?} }}")
}

/// Returns a client of the gateway.
fn client(service: &Service) -> Http {
    Http::new(service.address("gateway"))
}

/// Asserts that a response is a problem with this status.
#[track_caller]
fn assert_problem(response: &Answer, status: u16) {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(
        response.header("content-type"),
        Some("application/problem+json")
    );
    let body: serde_json::Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(body["status"], status, "{response:?}");
    assert!(response.header("x-request-id").is_some());
}
