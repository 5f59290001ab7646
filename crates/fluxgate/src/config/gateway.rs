//! The section `gateway`: routes, timeouts, limits and the certificate.

mod access_log;
mod llm;
mod mcp;
mod rewrite;
mod route;
mod upstream;
mod upstream_care;
mod values;

use std::num::NonZeroU64;

use fluxgate_gateway::{Limits, Timeouts};
use ipnet::IpNet;

use super::filters::{Filter, read_networks};
use super::listen::Tls;
use super::section::Section;
pub use access_log::{AccessLog, AccessLogFile};
pub use llm::Llm;
pub use mcp::Mcp;
pub use route::Route;
pub use upstream::Upstream;
use values::MAX_BODY;

/// The configuration of the gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The log of requests, if there is one.
    pub access_log: Option<AccessLog>,
    /// Whether every connection begins with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// The load balancers whose headers of the PROXY protocol are accepted.
    pub trusted_proxies: Vec<IpNet>,
    /// The routes. The first that matches a request applies.
    pub routes: Vec<Route>,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The limits of sizes and numbers.
    pub limits: Limits,
    /// The maximum memory for bodies of calls that are read before they are forwarded, in bytes.
    pub llm_buffer: u64,
    /// The certificate of the listener, if it uses TLS.
    pub tls: Option<Tls>,
}

impl Gateway {
    /// Returns whether a route reads calls of the Model Context Protocol for this filter.
    pub(super) fn reads_calls_for(&self, filter: &str) -> bool {
        let mut readers = self.routes.iter().filter_map(|route| route.mcp.as_ref());
        readers.any(|mcp| mcp.filter == filter)
    }

    pub(super) fn read(root: &mut Section<'_, '_>, filters: &[Filter]) -> Self {
        const FIELDS: &[&str] = &[
            "access_log",
            "proxy_protocol",
            "trusted_proxies",
            "routes",
            "timeouts",
            "limits",
            "llm",
            "tls",
        ];
        root.section("gateway", FIELDS, |section| Self {
            access_log: AccessLog::read(section),
            proxy_protocol: read_proxy_protocol(section),
            trusted_proxies: read_proxies(section),
            routes: route::read(section, filters),
            timeouts: read_timeouts(section),
            limits: read_limits(section),
            llm_buffer: llm::read_buffer(section),
            tls: Tls::read(section, &["cert", "key"]),
        })
    }
}

/// Reads whether connections begin with a header of the PROXY protocol, which only trusted proxies
/// may send.
fn read_proxy_protocol(section: &mut Section<'_, '_>) -> bool {
    let is_used = section.boolean("proxy_protocol", false);
    if let Some(node) = section.get("proxy_protocol").filter(|_| is_used)
        && section.get("trusted_proxies").is_none()
    {
        let message = "`proxy_protocol` needs `trusted_proxies` of the gateway, the networks of the \
                       load balancers";
        section.fault(node, message);
    }
    is_used
}

/// Reads the load balancers. Without them there is nothing to show.
fn read_proxies(section: &mut Section<'_, '_>) -> Vec<IpNet> {
    match section.get("trusted_proxies") {
        Some(_) => read_networks(section),
        None => Vec::new(),
    }
}

fn read_timeouts(section: &mut Section<'_, '_>) -> Timeouts {
    const FIELDS: &[&str] = &["connect", "headers", "idle", "request"];
    let default = Timeouts::default();
    section.section("timeouts", FIELDS, |section| Timeouts {
        connect: section.duration("connect", default.connect),
        headers: section.duration("headers", default.headers),
        idle: section.duration("idle", default.idle),
        request: section.duration("request", default.request),
    })
}

fn read_limits(section: &mut Section<'_, '_>) -> Limits {
    const MAX_HEADERS: u64 = 1 << 30;
    const MAX_CONNECTIONS: u64 = 1_000_000_000;
    const MAX_STREAMS: u32 = 100_000;
    /// The minimum that RFC 9113 recommends.
    const STREAMS: u32 = 100;
    const FIELDS: &[&str] = &[
        "header_bytes",
        "body_bytes",
        "connections",
        "upstream_connections",
        "streams",
    ];
    section.section("limits", FIELDS, |section| {
        let streams = section.whole("streams", 1..=MAX_STREAMS, STREAMS);
        let mut bound = |name, max, default| NonZeroU64::new(section.whole(name, 0..=max, default));
        Limits {
            header_bytes: bound("header_bytes", MAX_HEADERS, 65_536),
            body_bytes: bound("body_bytes", MAX_BODY, 0),
            connections: bound("connections", MAX_CONNECTIONS, 10_000),
            upstream_connections: bound("upstream_connections", MAX_CONNECTIONS, 10_000),
            streams,
        }
    })
}
