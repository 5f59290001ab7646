//! The routes of the gateway.

use std::collections::HashSet;
use std::sync::Arc;

use fluxgate_core::rules::values;
use fluxgate_core::yaml::{Faults, Node};
use fluxgate_gateway::{HostPattern, RouteMatch, UpstreamTarget};

use super::llm::Llm;
use crate::config::filters::Filter;
use crate::config::paths::PathPatterns;
use crate::config::read::{self, Section};
use crate::config::tree;
use crate::config::url::parse_upstream;

/// A route of the gateway.
#[derive(Clone, Debug)]
pub struct Route {
    /// The unique name of the route.
    pub id: String,
    /// The requests that the route is for.
    pub matches: RouteMatch,
    /// The paths of these requests as they are written.
    paths: Option<PathPatterns>,
    /// The upstreams; at least one.
    pub upstreams: Vec<UpstreamTarget>,
    /// The names of existing filters, in the order in which they evaluate a request.
    pub filters: Vec<String>,
    /// How calls to language models are counted, if they are.
    pub llm: Option<Llm>,
}

/// Reads the list under `routes`.
pub(super) fn read(nodes: &[Node], filters: &[Filter], faults: &mut Faults) -> Vec<Route> {
    let mut ids = HashSet::new();
    let routes = nodes.iter();
    routes
        .map(|node| Route::read(node, filters, &mut ids, faults))
        .collect()
}

impl Route {
    fn read<'n>(
        node: &'n Node,
        filters: &[Filter],
        ids: &mut HashSet<&'n str>,
        faults: &mut Faults,
    ) -> Self {
        let before = faults.count();
        const FIELDS: &[&str] = &["id", "match", "upstreams", "filters", "llm"];
        let section = Section::read(node, "a route", FIELDS, faults);
        // A node that is not a mapping has been reported already.
        if faults.count() == before {
            for name in ["id", "upstreams"] {
                if section.get(name).is_none() {
                    faults.add(node.position, format!("a route needs `{name}`"));
                }
            }
        }
        let id = section.get("id").and_then(|node| {
            let id = read::name(node, "`id`", faults)?;
            if !ids.insert(id) {
                faults.add(node.position, format!("there is a route `{id}` already"));
            }
            Some(id)
        });
        let upstreams = section
            .list("upstreams", faults)
            .iter()
            .filter_map(|node| {
                let upstream = parse_upstream(node.text("an upstream", faults)?);
                upstream
                    .map_err(|why| faults.add(node.position, format!("an upstream {why}")))
                    .ok()
            })
            .collect();
        let named = section
            .list_or_empty("filters", faults)
            .iter()
            .filter_map(|node| {
                let name = node.text("the name of a filter", faults)?;
                if !filters.iter().any(|filter| filter.name == name) {
                    let known: Vec<_> = filters.iter().map(|filter| &filter.name[..]).collect();
                    let known = if known.is_empty() {
                        "there are none".into()
                    } else {
                        format!("there are {}", known.join(", "))
                    };
                    faults.add(
                        node.position,
                        format!("there is no filter `{name}`; {known}"),
                    );
                }
                Some(name.to_owned())
            });
        let filters: Vec<_> = named.collect();
        let llm = section
            .get("llm")
            .and_then(|node| Llm::read(node, &filters, faults));
        let matches = section.get("match").map(|node| read_match(node, faults));
        let (matches, paths) = matches.unwrap_or_default();
        Self {
            id: id.unwrap_or_default().into(),
            matches,
            paths,
            upstreams,
            filters,
            llm,
        }
    }

    pub(super) fn node(&self) -> Node {
        let upstreams = self.upstreams.iter();
        let upstreams = tree::list(upstreams.map(|upstream| tree::text(upstream.to_string())));
        tree::map([
            ("id", Some(tree::text(&self.id))),
            ("match", show_match(&self.matches, self.paths.as_ref())),
            ("upstreams", Some(upstreams)),
            (
                "filters",
                Some(tree::list(self.filters.iter().map(tree::text))),
            ),
            ("llm", self.llm.as_ref().map(Llm::node)),
        ])
    }
}

fn read_match(node: &Node, faults: &mut Faults) -> (RouteMatch, Option<PathPatterns>) {
    const FIELDS: &[&str] = &["path", "host", "methods", "headers"];
    let section = Section::read(node, "`match`", FIELDS, faults);
    let hosts = section.list("host", faults).iter().filter_map(|node| {
        let text = node.text("a host", faults)?;
        let host = HostPattern::parse(text);
        if host.is_none() {
            let allowed = "such as api.example.com or *.example.com, without a port";
            faults.add(node.position, format!("`{text}` is no host, {allowed}"));
        }
        host
    });
    let hosts = hosts.collect();
    let methods = section.list("methods", faults).iter().filter_map(|node| {
        let text = node.text("a method", faults)?;
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            faults.add(node.position, format!("`{text}` cannot be a method"));
        }
        Some(text.to_owned())
    });
    let methods = methods.collect();
    let paths = section
        .get("path")
        .map(|node| PathPatterns::read(node, "`path`", faults));
    let headers = section.get("headers");
    let matches = RouteMatch {
        paths: paths.as_ref().map(|paths| Arc::clone(paths.set())),
        hosts,
        methods,
        headers: headers.map_or_else(Vec::new, |node| read_headers(node, faults)),
    };
    (matches, paths)
}

fn show_match(matches: &RouteMatch, paths: Option<&PathPatterns>) -> Option<Node> {
    let texts = |texts: Vec<String>| {
        (!texts.is_empty()).then(|| tree::list(texts.into_iter().map(tree::text)))
    };
    let headers = matches
        .headers
        .iter()
        .map(|(name, value)| (&**name, Some(tree::text(value))));
    let shown = [
        ("path", paths.and_then(PathPatterns::node)),
        (
            "host",
            texts(matches.hosts.iter().map(HostPattern::to_string).collect()),
        ),
        ("methods", texts(matches.methods.clone())),
        (
            "headers",
            (!matches.headers.is_empty()).then(|| tree::map(headers)),
        ),
    ];
    let any = shown.iter().any(|(_, value)| value.is_some());
    any.then(|| tree::map(shown))
}

fn read_headers(node: &Node, faults: &mut Faults) -> Vec<(Box<str>, Box<str>)> {
    let mut headers: Vec<(Box<str>, Box<str>)> = Vec::new();
    for (name, key, value) in node.map("`headers`", faults) {
        let Some(name) = values::header_name(name, key.position, faults) else {
            continue;
        };
        if headers.iter().any(|(known, _)| *known == name) {
            faults.add(
                key.position,
                format!("header `{name}` appears twice (their case does not matter)"),
            );
        }
        if let Some(value) = value.text("a header's value", faults) {
            headers.push((name, value.into()));
        }
    }
    headers
}
