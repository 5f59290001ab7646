//! Which requests go where.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use fluxgate_tower::{Filter, Head, TrustedProxies};

use super::upstream::Upstream;
use super::upstreams::Upstreams;
use crate::config::{self, Config, RouteMatch};
use crate::filters::Filters;

/// All routes; the first that matches wins.
#[derive(Debug)]
pub(crate) struct Routes {
    routes: Vec<Route>,
}

/// Where requests of one kind go.
#[derive(Debug)]
pub(crate) struct Route {
    /// Its name.
    pub(crate) id: Box<str>,
    /// Who answers them.
    pub(crate) upstreams: Upstreams,
    /// Whether all who answer them speak HTTP over TCP and nothing else.
    pub(super) is_plain: bool,
    /// Who judges them, in order.
    pub(crate) filters: Vec<Arc<Filter>>,
    matches: RouteMatch,
    /// Whose word about the client is taken.
    trusted: TrustedProxies,
    /// The headers by which its filters know whom to count.
    identities: Box<[Box<str>]>,
}

impl Routes {
    /// Those that the config names.
    pub(crate) fn new(config: &Config, filters: &Filters) -> Self {
        // A server that several routes name is one: it is well or not for all.
        let mut upstreams: Vec<Arc<Upstream>> = Vec::new();
        let routes = config.gateway.routes.iter().map(|route| {
            let servers = route.upstreams.iter().map(|target| {
                let known = upstreams.iter().find(|known| known.target == *target);
                if let Some(known) = known {
                    return Arc::clone(known);
                }
                let new = Arc::new(Upstream::new(upstreams.len(), target.clone()));
                upstreams.push(Arc::clone(&new));
                new
            });
            let servers = Upstreams::new(servers.collect());
            let named = || route.filters.iter();
            let trusted = named()
                .filter_map(|name| config.filter(name))
                .flat_map(|filter| &filter.trusted_proxies);
            let is_plain =
                |it: &config::Upstream| matches!(it, config::Upstream::Http { tls: false, .. });
            Route {
                is_plain: route.upstreams.iter().all(is_plain),
                id: route.id.as_str().into(),
                upstreams: servers,
                matches: route.matches.clone(),
                trusted: TrustedProxies::new(trusted.copied()),
                identities: identities(named().filter_map(|name| config.filter(name))),
                filters: named()
                    .filter_map(|name| filters.get(name))
                    .cloned()
                    .collect(),
            }
        });
        Self {
            routes: routes.collect(),
        }
    }

    /// The route of a request for this host, which has no port with it.
    pub(crate) fn find(&self, head: &impl Head, host: &str) -> Option<&Route> {
        let mut routes = self.routes.iter();
        routes.find(|route| route.is_for(head, host))
    }
}

impl Route {
    fn is_for(&self, head: &impl Head, host: &str) -> bool {
        let RouteMatch {
            paths,
            hosts,
            methods,
            headers,
        } = &self.matches;
        let any = |list_is_empty: bool, fits: &dyn Fn() -> bool| list_is_empty || fits();
        paths
            .as_ref()
            .is_none_or(|paths| paths.contains(head.path()))
            && any(hosts.is_empty(), &|| {
                hosts.iter().any(|it| it.matches(host))
            })
            && any(methods.is_empty(), &|| {
                methods.iter().any(|method| method == head.method())
            })
            && headers.iter().all(|(name, value)| {
                let mut lines = head.header_lines(name);
                lines.next() == Some(value.as_bytes()) && lines.next().is_none()
            })
    }

    /// Whether this peer's word about the client is taken.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted.trusts(peer)
    }

    /// Whether a request says twice whom it is from: an upstream that reads another
    /// line than its filters would take it for somebody who was not counted.
    pub(crate) fn is_from_two(&self, head: &impl Head) -> bool {
        let mut names = self.identities.iter();
        names.any(|name| head.header_lines(name).nth(1).is_some())
    }
}

/// The headers by which these filters know whom to count, each once.
fn identities<'a>(filters: impl Iterator<Item = &'a config::Filter>) -> Box<[Box<str>]> {
    let names = filters.flat_map(|filter| [&filter.identity.user, &filter.identity.api_key]);
    let names: BTreeSet<_> = names.cloned().collect();
    names.into_iter().collect()
}

/// A host without its port, and without the dot that may end a name: `a.example` of
/// `a.example.:80`, `[::1]` of `[::1]:80`.
pub(crate) fn host_name(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn routes(yaml: &str) -> Routes {
        let dir = std::env::temp_dir().join(format!("fluxgate-routes-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("config.yaml");
        std::fs::write(&file, yaml).unwrap();
        let config = Config::load(Some(&file), &Overrides::default()).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        Routes::new(&config, &Filters::new(&config))
    }

    #[test]
    fn the_first_that_matches_wins() {
        let routes = routes(
            "gateway:
  routes:
    - { id: host, match: { host: [a.example, '*.b.example'] }, upstreams: ['http://h:1'] }
    - { id: header, match: { headers: { X-Plan: pro } }, upstreams: ['http://h:1'] }
    - { id: method, match: { methods: [PUT], path: [/x/**] }, upstreams: ['http://h:2'] }
    - { id: path, match: { path: [/x/**] }, upstreams: ['http://h:2'] }
",
        );
        let found = |method: &str, path: &str, host: &str, plans: &[&str]| {
            let mut request = http::Request::builder().method(method).uri(path);
            for plan in plans {
                request = request.header("X-Plan", *plan);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let route = routes.find(&parts, host_name(host));
            route.map(|route| route.id.to_string())
        };
        for (method, path, host, plans, expected) in [
            ("GET", "/", "A.example:8080", &[][..], Some("host")),
            ("GET", "/x", "c.B.example", &[], Some("host")),
            ("GET", "/x", "b.example", &[], Some("path")),
            ("GET", "/", "x", &["pro"], Some("header")),
            ("GET", "/", "x", &["pro", "pro"], None),
            ("GET", "/", "x", &["Pro"], None),
            ("PUT", "/x/y?z", "x", &[], Some("method")),
            ("put", "/x/y", "x", &[], Some("path")),
            ("PUT", "/y", "x", &[], None),
        ] {
            assert_eq!(
                found(method, path, host, plans).as_deref(),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn a_port_is_no_part_of_a_host() {
        for (host, name) in [
            ("a.example", "a.example"),
            ("a.example:80", "a.example"),
            ("a.example.", "a.example"),
            ("a.example.:80", "a.example"),
            ("[::1]", "[::1]"),
            ("[::1]:80", "[::1]"),
            ("", ""),
        ] {
            assert_eq!(host_name(host), name);
        }
    }
}
