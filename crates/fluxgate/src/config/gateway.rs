//! The section `gateway`: routes, timeouts, limits and the certificate.

mod llm;
mod route;

use std::num::NonZeroU64;

use fluxgate_core::yaml::{Faults, Node};
use fluxgate_gateway::{Limits, Timeouts};

use super::filters::Filter;
use super::read::Section;
use super::tls::Tls;
use super::tree;
pub use llm::Llm;
pub use route::Route;

/// The configuration of the gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The routes. The first that matches a request applies.
    pub routes: Vec<Route>,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The limits of sizes and numbers.
    pub limits: Limits,
    /// The maximum memory for bodies of calls to language models, in bytes.
    pub llm_buffer: u64,
    /// The certificate of the listener, if it uses TLS.
    pub tls: Option<Tls>,
}

impl Gateway {
    pub(super) fn read(node: Option<&Node>, filters: &[Filter], faults: &mut Faults) -> Self {
        const FIELDS: &[&str] = &["routes", "timeouts", "limits", "llm", "tls"];
        let section = Section::read(node, "`gateway`", FIELDS, faults);
        Self {
            routes: route::read(section.list("routes", faults), filters, faults),
            timeouts: read_timeouts(section.get("timeouts"), faults),
            limits: read_limits(section.get("limits"), faults),
            llm_buffer: llm::read_buffer(section.get("llm"), faults),
            tls: section.get("tls").and_then(|node| Tls::read(node, faults)),
        }
    }

    pub(super) fn node(&self) -> Node {
        let routes = self.routes.iter().map(Route::node);
        let routes = (!self.routes.is_empty()).then(|| tree::list(routes));
        let tls = self.tls.as_ref().map(Tls::node);
        tree::map([
            ("routes", routes),
            ("timeouts", Some(show_timeouts(&self.timeouts))),
            ("limits", Some(show_limits(&self.limits))),
            ("llm", Some(llm::show_buffer(self.llm_buffer))),
            ("tls", tls),
        ])
    }
}

fn read_timeouts(node: Option<&Node>, faults: &mut Faults) -> Timeouts {
    const FIELDS: &[&str] = &["connect", "headers", "idle", "request"];
    let section = Section::read(node, "`timeouts`", FIELDS, faults);
    let default = Timeouts::default();
    Timeouts {
        connect: section.duration("connect", default.connect, faults),
        headers: section.duration("headers", default.headers, faults),
        idle: section.duration("idle", default.idle, faults),
        request: section.duration("request", default.request, faults),
    }
}

fn show_timeouts(timeouts: &Timeouts) -> Node {
    tree::map([
        ("connect", Some(tree::duration(timeouts.connect))),
        ("headers", Some(tree::duration(timeouts.headers))),
        ("idle", Some(tree::duration(timeouts.idle))),
        ("request", Some(tree::duration(timeouts.request))),
    ])
}

fn read_limits(node: Option<&Node>, faults: &mut Faults) -> Limits {
    const MAX_HEADERS: u64 = 1 << 30;
    const MAX_BODY: u64 = 1 << 50;
    const MAX_CONNECTIONS: u64 = 1_000_000_000;
    const MAX_STREAMS: u64 = 100_000;
    /// The minimum that RFC 9113 recommends.
    const STREAMS: u32 = 100;
    const FIELDS: &[&str] = &[
        "header_bytes",
        "body_bytes",
        "connections",
        "upstream_connections",
        "streams",
    ];
    let section = Section::read(node, "`limits`", FIELDS, faults);
    let streams = section
        .whole("streams", 1..=MAX_STREAMS, faults)
        .and_then(|streams| u32::try_from(streams).ok());
    let mut bound = |name, max, default| {
        NonZeroU64::new(section.whole(name, 0..=max, faults).unwrap_or(default))
    };
    Limits {
        header_bytes: bound("header_bytes", MAX_HEADERS, 65_536),
        body_bytes: bound("body_bytes", MAX_BODY, 0),
        connections: bound("connections", MAX_CONNECTIONS, 10_000),
        upstream_connections: bound("upstream_connections", MAX_CONNECTIONS, 10_000),
        streams: streams.unwrap_or(STREAMS),
    }
}

fn show_limits(limits: &Limits) -> Node {
    let bound = |bound: Option<NonZeroU64>| Some(tree::plain(bound.map_or(0, u64::from)));
    tree::map([
        ("header_bytes", bound(limits.header_bytes)),
        ("body_bytes", bound(limits.body_bytes)),
        ("connections", bound(limits.connections)),
        ("upstream_connections", bound(limits.upstream_connections)),
        ("streams", Some(tree::plain(u64::from(limits.streams)))),
    ])
}
