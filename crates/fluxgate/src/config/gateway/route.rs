//! Which requests go where.

use std::collections::HashSet;
use std::fmt;

use fluxgate_core::values;
use fluxgate_core::yaml::{Faults, Node};

use crate::config::filters::Filter;
use crate::config::paths::Paths;
use crate::config::url::Upstream;
use crate::config::{read, tree};

/// Which requests go where, and by which limits.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name, unlike any other's.
    pub id: String,
    /// The requests it is for.
    pub matches: RouteMatch,
    /// Who answers them; one at least.
    pub upstreams: Vec<Upstream>,
    /// The names of filters that exist, in the order in which they are asked.
    pub filters: Vec<String>,
}

/// The requests that a route is for: all given parts must hold.
#[derive(Clone, Debug, Default)]
pub struct RouteMatch {
    /// Any of these paths.
    pub paths: Option<Paths>,
    /// Any of these hosts; none given: all.
    pub hosts: Vec<HostPattern>,
    /// Any of these methods, as they are written; none given: all.
    pub methods: Vec<String>,
    /// All of these headers, with just these values; names in lower case.
    pub headers: Vec<(Box<str>, Box<str>)>,
}

/// The hosts that a route is for, in lower case and without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// This one.
    Exact(String),
    /// All that end with this, which begins with a dot.
    Suffix(String),
}

impl HostPattern {
    /// Whether a host (without its port) is meant.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(known) => host.eq_ignore_ascii_case(known),
            Self::Suffix(suffix) => {
                let start = host.len().checked_sub(suffix.len());
                let end = start
                    .filter(|start| *start > 0)
                    .and_then(|at| host.get(at..));
                end.is_some_and(|end| end.eq_ignore_ascii_case(suffix))
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        if text.starts_with('[') {
            let address = text.strip_prefix('[')?.strip_suffix(']')?;
            return address
                .parse::<std::net::Ipv6Addr>()
                .is_ok()
                .then_some(Self::Exact(text));
        }
        let is_host = |name: &str| {
            !name.is_empty()
                && name.len() <= 253
                && name.split('.').all(|label| {
                    !label.is_empty()
                        && label
                            .bytes()
                            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
                })
        };
        match text.strip_prefix('*') {
            Some(suffix) => {
                let name = suffix.strip_prefix('.')?;
                is_host(name).then(|| Self::Suffix(suffix.into()))
            }
            None => is_host(&text).then_some(Self::Exact(text)),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
        }
    }
}

/// The list under `routes`.
pub(super) fn read(node: Option<&Node>, filters: &[Filter], faults: &mut Faults) -> Vec<Route> {
    let nodes = node.map_or(&[][..], |node| node.list("`routes`", faults));
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
        let [id, matches, route_upstreams, route_filters] =
            node.fields("a route", ["id", "match", "upstreams", "filters"], faults);
        // What is no mapping at all has been told.
        if faults.count() == before {
            for (name, field) in [("id", id), ("upstreams", route_upstreams)] {
                if field.is_none() {
                    faults.add(node.position, format!("a route needs `{name}`"));
                }
            }
        }
        let id = id.and_then(|node| {
            let id = read::name(node, "`id`", faults)?;
            if !ids.insert(id) {
                faults.add(node.position, format!("there is a route `{id}` already"));
            }
            Some(id)
        });
        let upstreams = route_upstreams.map_or(&[][..], |node| node.list("`upstreams`", faults));
        let upstreams = upstreams.iter().filter_map(|node| {
            let upstream = Upstream::parse(node.text("an upstream", faults)?);
            upstream
                .map_err(|why| faults.add(node.position, format!("an upstream {why}")))
                .ok()
        });
        let upstreams = upstreams.collect();
        let named = read::any_list(route_filters, "`filters`", faults);
        let named = named.iter().filter_map(|node| {
            let name = node.text("the name of a filter", faults)?;
            if !filters.iter().any(|filter| filter.name == name) {
                let known: Vec<_> = filters.iter().map(|filter| &filter.name[..]).collect();
                let known = match known.is_empty() {
                    true => "there are none".into(),
                    false => format!("there are {}", known.join(", ")),
                };
                faults.add(
                    node.position,
                    format!("there is no filter `{name}`; {known}"),
                );
            }
            Some(name.to_owned())
        });
        let filters = named.collect();
        Self {
            id: id.unwrap_or_default().into(),
            matches: matches
                .map_or_else(RouteMatch::default, |node| RouteMatch::read(node, faults)),
            upstreams,
            filters,
        }
    }

    pub(super) fn show(&self) -> Node {
        let upstreams = self.upstreams.iter();
        let upstreams = tree::list(upstreams.map(|upstream| tree::text(upstream.to_string())));
        tree::map([
            ("id", Some(tree::text(&self.id))),
            ("match", self.matches.show()),
            ("upstreams", Some(upstreams)),
            (
                "filters",
                Some(tree::list(self.filters.iter().map(tree::text))),
            ),
        ])
    }
}

impl RouteMatch {
    fn read(node: &Node, faults: &mut Faults) -> Self {
        let names = ["path", "host", "methods", "headers"];
        let [path, host, methods, headers] = node.fields("`match`", names, faults);
        let hosts = host.map_or(&[][..], |node| node.list("`host`", faults));
        let hosts = hosts.iter().filter_map(|node| {
            let text = node.text("a host", faults)?;
            let host = HostPattern::parse(text);
            if host.is_none() {
                let allowed = "such as api.example.com or *.example.com, without a port";
                faults.add(node.position, format!("`{text}` is no host, {allowed}"));
            }
            host
        });
        let hosts = hosts.collect();
        let methods = methods.map_or(&[][..], |node| node.list("`methods`", faults));
        let methods = methods.iter().filter_map(|node| {
            let text = node.text("a method", faults)?;
            if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                faults.add(node.position, format!("`{text}` cannot be a method"));
            }
            Some(text.to_owned())
        });
        Self {
            methods: methods.collect(),
            paths: path.map(|node| Paths::read(node, "`path`", faults)),
            hosts,
            headers: headers.map_or_else(Vec::new, |node| read_headers(node, faults)),
        }
    }

    fn show(&self) -> Option<Node> {
        let texts = |texts: Vec<String>| {
            (!texts.is_empty()).then(|| tree::list(texts.into_iter().map(tree::text)))
        };
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (&**name, Some(tree::text(value))));
        let shown = [
            ("path", self.paths.as_ref().and_then(Paths::show)),
            (
                "host",
                texts(self.hosts.iter().map(HostPattern::to_string).collect()),
            ),
            ("methods", texts(self.methods.clone())),
            (
                "headers",
                (!self.headers.is_empty()).then(|| tree::map(headers)),
            ),
        ];
        let any = shown.iter().any(|(_, value)| value.is_some());
        any.then(|| tree::map(shown))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let good = [
            "api.example.com",
            "*.example.com",
            "LOCALHOST",
            "127.0.0.1",
            "[::1]",
        ];
        for text in good {
            let host = HostPattern::parse(text).map(|host| host.to_string());
            assert_eq!(host, Some(text.to_lowercase()));
        }
        for text in [
            "", "*", "*.", "a..b", "a:80", "http://a", "a*.b", "[::1]:80", "a b",
        ] {
            assert_eq!(HostPattern::parse(text), None, "{text}");
        }
        let wild = HostPattern::parse("*.example.com").unwrap();
        assert!(wild.matches("API.example.com") && wild.matches("a.b.example.com"));
        assert!(!wild.matches("example.com") && !wild.matches(".example.com"));
        assert!(!wild.matches("badexample.com") && !wild.matches("é"));
    }
}
