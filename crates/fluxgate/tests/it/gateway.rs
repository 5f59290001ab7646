//! The gateway, between real clients and real upstreams.

mod balancing;
mod blame;
mod demo;
mod forwarding;
mod http2;
mod limits;
mod routing;
mod streaming;
mod tls;
mod trouble;
mod two_ways;
mod upgrades;
mod upstream;

use fluxgate_testkit::{Answer, Http};

use crate::service::Service;
use upstream::Upstream;

/// One request a minute for each address.
const ONE_A_MINUTE: &str = "rule_sets: { s: { rules: [ { id: r, scope: per_ip, bands: [ { capacity: 1, window: 1m } ] } ] } }\n";

/// A gateway with these routes, one a line, and whatever else `more` says.
fn start(routes: &[String], more: &str) -> Service {
    let routes: Vec<_> = routes
        .iter()
        .map(|route| format!("    - {route}\n"))
        .collect();
    let routes = routes.concat();
    Service::start(
        &["gateway"],
        &format!("{more}gateway:\n  routes:\n{routes}"),
    )
}

/// A gateway with one route to these upstreams; `settings` are lines under
/// `gateway`.
fn before(upstreams: &[&Upstream], settings: &str) -> Service {
    let route = route("all", "", upstreams);
    let config = format!("gateway:\n{settings}  routes:\n    - {route}\n");
    Service::start(&["gateway"], &config)
}

/// A route to these upstreams; `more` are further fields.
fn route(id: &str, more: &str, upstreams: &[&Upstream]) -> String {
    let urls: Vec<_> = upstreams.iter().map(|upstream| upstream.url()).collect();
    format!("{{ id: {id}, {more} upstreams: {urls:?} }}")
}

/// A client of the gateway.
fn client(service: &Service) -> Http {
    Http::new(service.address("gateway"))
}

/// Makes sure that an answer is a problem of this status.
#[track_caller]
fn assert_problem(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(body["status"], status, "{answer:?}");
    assert!(answer.header("x-request-id").is_some());
}
