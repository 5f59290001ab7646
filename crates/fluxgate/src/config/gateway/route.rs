//! The routes of the gateway.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use fluxgate_core::yaml::{Faults, Node};
use fluxgate_gateway::{
    CorsConfig, HeaderEdits, HealthConfig, HostPattern, RetryConfig, RewriteConfig, RouteBodyLimit,
    RouteMatch, RouteTimeouts,
};

use super::llm::Llm;
use super::mcp::Mcp;
use super::rewrite;
use super::upstream::{self, Upstream};
use super::upstream_care;
use super::values::{MAX_BODY, read_methods};
use crate::config::filters::Filter;
use crate::config::paths::PathPatterns;
use crate::config::section::Section;
use crate::config::tree;

/// A route of the gateway.
#[derive(Clone, Debug)]
pub struct Route {
    /// The unique name of the route.
    pub id: String,
    /// The requests that the route is for.
    pub matches: RouteMatch,
    /// The upstreams; at least one.
    pub upstreams: Vec<Upstream>,
    /// The active health check of the upstreams, if there is one.
    pub health: Option<HealthConfig>,
    /// Which requests are tried again, if the route says so.
    pub retry: Option<RetryConfig>,
    /// How long things may take, where it differs from the gateway.
    pub timeouts: RouteTimeouts,
    /// The size of the body of a request, if it differs from the gateway.
    pub body_bytes: Option<RouteBodyLimit>,
    /// How the target and the host of requests are changed.
    pub rewrite: RewriteConfig,
    /// Headers that are set or removed in requests, and in responses.
    pub headers: [HeaderEdits; 2],
    /// Which pages of other sites may use the route, if the gateway decides that.
    pub cors: Option<CorsConfig>,
    /// The names of existing filters, in the order in which they evaluate a request.
    pub filters: Vec<String>,
    /// How calls to language models are counted, if they are.
    pub llm: Option<Llm>,
    /// How calls of the Model Context Protocol are read, if they are.
    pub mcp: Option<Mcp>,
}

/// Reads the list under `routes`.
pub(super) fn read(gateway: &mut Section<'_, '_>, filters: &[Filter]) -> Vec<Route> {
    let mut ids = HashSet::new();
    let nodes = gateway.list("routes").iter();
    let (routes, shown): (Vec<_>, Vec<_>) = nodes
        .map(|node| Route::read(node, filters, &mut ids, gateway.faults))
        .unzip();
    if !routes.is_empty() {
        gateway.show("routes", tree::list(shown));
    }
    routes
}

impl Route {
    fn read<'n>(
        node: &'n Node,
        filters: &[Filter],
        ids: &mut HashSet<&'n str>,
        faults: &mut Faults,
    ) -> (Self, Node) {
        const FIELDS: &[&str] = &[
            "id",
            "match",
            "upstreams",
            "health",
            "retry",
            "rewrite",
            "headers",
            "cors",
            "timeouts",
            "limits",
            "filters",
            "llm",
            "mcp",
        ];
        let mut section = Section::read(node, "a route", FIELDS, faults);
        for name in ["id", "upstreams"] {
            if section.get(name).is_none() {
                section.missing(format!("a route needs `{name}`"));
            }
        }
        let id = section.name("id").unwrap_or_default();
        if let Some(node) = section.get("id").filter(|_| !id.is_empty())
            && !ids.insert(id)
        {
            section.fault(node, format!("there is a route `{id}` already"));
        }
        let upstreams = upstream::read(&mut section);
        let filters = read_filters(&mut section, filters);
        let route = Self {
            id: id.into(),
            matches: read_match(&mut section),
            upstreams,
            health: upstream_care::read_health(&mut section),
            retry: upstream_care::read_retry(&mut section),
            rewrite: rewrite::read_rewrite(&mut section),
            headers: rewrite::read_headers(&mut section),
            cors: rewrite::read_cors(&mut section),
            timeouts: read_timeouts(&mut section),
            body_bytes: read_limits(&mut section),
            llm: Llm::read(&mut section, &filters),
            mcp: Mcp::read(&mut section, &filters),
            filters,
        };
        (route, section.into_node())
    }
}

/// Reads the timeouts of a route. Those of the gateway apply to what it does not name.
fn read_timeouts(route: &mut Section<'_, '_>) -> RouteTimeouts {
    const FIELDS: &[&str] = &["connect", "idle", "request"];
    let timeouts = route.optional_section("timeouts", FIELDS, |section| RouteTimeouts {
        connect: section.optional_duration("connect"),
        idle: section.optional_duration("idle"),
        request: section.optional_duration("request"),
    });
    timeouts.unwrap_or_default()
}

/// Reads the limits of a route.
fn read_limits(route: &mut Section<'_, '_>) -> Option<RouteBodyLimit> {
    let limit = route.optional_section("limits", &["body_bytes"], |section| {
        let bytes = section.optional_whole("body_bytes", 0..=MAX_BODY)?;
        Some(NonZeroU64::new(bytes))
    });
    limit.flatten()
}

/// Reads the names of filters, which must exist.
fn read_filters(section: &mut Section<'_, '_>, filters: &[Filter]) -> Vec<String> {
    let mut names = Vec::new();
    for node in section.list_or_empty("filters") {
        let Some(name) = node.text("the name of a filter", section.faults) else {
            continue;
        };
        if !filters.iter().any(|filter| filter.name == name) {
            let known: Vec<_> = filters.iter().map(|filter| &filter.name[..]).collect();
            let known = if known.is_empty() {
                "there are none".into()
            } else {
                format!("there are {}", known.join(", "))
            };
            section.fault(node, format!("there is no filter `{name}`; {known}"));
        }
        names.push(name.to_owned());
    }
    section.show("filters", tree::texts(&names));
    names
}

fn read_match(route: &mut Section<'_, '_>) -> RouteMatch {
    route.section(
        "match",
        &["path", "host", "methods", "headers"],
        |section| {
            let mut hosts = Vec::new();
            for node in section.list("host") {
                let Some(text) = node.text("a host", section.faults) else {
                    continue;
                };
                let host = HostPattern::parse(text);
                if host.is_none() {
                    let allowed = "such as api.example.com or *.example.com, without a port";
                    section.fault(node, format!("`{text}` is no host, {allowed}"));
                }
                hosts.extend(host);
            }
            let methods = read_methods(section);
            let paths = PathPatterns::read(section, "path");
            section.show("path", paths.as_ref().and_then(PathPatterns::node));
            section.show("host", (!hosts.is_empty()).then(|| tree::texts(&hosts)));
            section.show(
                "methods",
                (!methods.is_empty()).then(|| tree::texts(&methods)),
            );
            RouteMatch {
                paths: paths.map(|paths| Arc::clone(paths.set())),
                hosts,
                methods,
                headers: rewrite::read_header_tests(section),
            }
        },
    )
}
