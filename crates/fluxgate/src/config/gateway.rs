//! What the gateway forwards, and within which bounds.

mod route;

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use fluxgate_core::yaml::{Faults, Node};

use super::filters::Filter;
use super::{read, tree};
pub use route::{HostPattern, Route, RouteMatch};

/// What the gateway forwards, and within which bounds.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The first that matches wins.
    pub routes: Vec<Route>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How large and how many they may be.
    pub limits: Limits,
    /// What the listener shows, if it speaks TLS.
    pub tls: Option<Tls>,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect to an upstream.
    pub connect: Duration,
    /// For a client to send the headers of a request.
    pub headers: Duration,
    /// Between two requests of a connection.
    pub idle: Duration,
    /// For an upstream to begin its answer.
    pub request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            headers: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            request: Duration::from_secs(30),
        }
    }
}

/// How large and how many things may be; none is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The headers of a request.
    pub header_bytes: Option<NonZeroU64>,
    /// Its body.
    pub body_bytes: Option<NonZeroU64>,
    /// Connections of clients at a time.
    pub connections: Option<NonZeroU64>,
    /// Connections to upstreams at a time, idle ones included.
    pub upstream_connections: Option<NonZeroU64>,
    /// Requests at a time on one connection over HTTP/2.
    pub streams: u32,
}

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The chain of certificates.
    pub cert: PathBuf,
    /// The key of the first of them.
    pub key: PathBuf,
}

impl Gateway {
    pub(super) fn read(node: Option<&Node>, filters: &[Filter], faults: &mut Faults) -> Self {
        let names = ["routes", "timeouts", "limits", "tls"];
        let [routes, timeouts, limits, tls] =
            node.map_or([None; 4], |node| node.fields("`gateway`", names, faults));
        Self {
            routes: route::read(routes, filters, faults),
            timeouts: Timeouts::read(timeouts, faults),
            limits: Limits::read(limits, faults),
            tls: tls.and_then(|node| Tls::read(node, faults)),
        }
    }

    pub(super) fn show(&self) -> Node {
        let routes = self.routes.iter().map(Route::show);
        let routes = (!self.routes.is_empty()).then(|| tree::list(routes));
        let tls = self.tls.as_ref().map(|tls| {
            let [cert, key] = [&tls.cert, &tls.key].map(|path| Some(tree::path(path)));
            tree::map([("cert", cert), ("key", key)])
        });
        tree::map([
            ("routes", routes),
            ("timeouts", Some(self.timeouts.show())),
            ("limits", Some(self.limits.show())),
            ("tls", tls),
        ])
    }
}

impl Timeouts {
    fn read(node: Option<&Node>, faults: &mut Faults) -> Self {
        let names = ["connect", "headers", "idle", "request"];
        let [connect, headers, idle, request] =
            node.map_or([None; 4], |node| node.fields("`timeouts`", names, faults));
        let default = Self::default();
        Self {
            connect: read::duration(connect, "`connect`", default.connect, faults),
            headers: read::duration(headers, "`headers`", default.headers, faults),
            idle: read::duration(idle, "`idle`", default.idle, faults),
            request: read::duration(request, "`request`", default.request, faults),
        }
    }

    fn show(&self) -> Node {
        tree::map([
            ("connect", Some(tree::duration(self.connect))),
            ("headers", Some(tree::duration(self.headers))),
            ("idle", Some(tree::duration(self.idle))),
            ("request", Some(tree::duration(self.request))),
        ])
    }
}

impl Limits {
    fn read(node: Option<&Node>, faults: &mut Faults) -> Self {
        const MOST_HEADERS: u64 = 1 << 30;
        const MOST_BODY: u64 = 1 << 50;
        const MOST_CONNECTIONS: u64 = 1_000_000_000;
        const MOST_STREAMS: u64 = 100_000;
        /// What RFC 9113 recommends as the least.
        const STREAMS: u32 = 100;
        let names = [
            "header_bytes",
            "body_bytes",
            "connections",
            "upstream_connections",
            "streams",
        ];
        let [header_bytes, body_bytes, connections, upstreams, streams] =
            node.map_or([None; 5], |node| node.fields("`limits`", names, faults));
        let domain = (1, MOST_STREAMS);
        let streams = read::whole(streams, "`streams`", domain, STREAMS.into(), faults);
        let mut bound = |node, what, most, default| {
            NonZeroU64::new(read::whole(node, what, (0, most), default, faults))
        };
        Self {
            header_bytes: bound(header_bytes, "`header_bytes`", MOST_HEADERS, 65_536),
            body_bytes: bound(body_bytes, "`body_bytes`", MOST_BODY, 0),
            connections: bound(connections, "`connections`", MOST_CONNECTIONS, 10_000),
            upstream_connections: bound(
                upstreams,
                "`upstream_connections`",
                MOST_CONNECTIONS,
                10_000,
            ),
            streams: u32::try_from(streams).unwrap_or(STREAMS),
        }
    }

    fn show(&self) -> Node {
        let bound = |bound: Option<NonZeroU64>| Some(tree::plain(bound.map_or(0, u64::from)));
        tree::map([
            ("header_bytes", bound(self.header_bytes)),
            ("body_bytes", bound(self.body_bytes)),
            ("connections", bound(self.connections)),
            ("upstream_connections", bound(self.upstream_connections)),
            ("streams", Some(tree::plain(u64::from(self.streams)))),
        ])
    }
}

impl Tls {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let before = faults.count();
        let [cert, key] = node.fields("`tls`", ["cert", "key"], faults);
        if faults.count() == before && (cert.is_none() || key.is_none()) {
            faults.add(node.position, "`tls` needs `cert` and `key`");
        }
        let cert = read::path(cert, "`cert`", faults);
        let key = read::path(key, "`key`", faults);
        Some(Self {
            cert: cert?,
            key: key?,
        })
    }
}
