//! Which requests go where.

use std::net::IpAddr;
use std::sync::Arc;

use fluxgate_core::RequestPath;
use fluxgate_tower::{BadRequest, Filter, Identity, RequestHead, TrustedProxies};
use http::HeaderMap;

use super::upstream::Upstream;
use super::upstreams::Upstreams;
use crate::config::{self, Config, RouteMatch};
use crate::engine::Filters;

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
    identities: Box<[Identity]>,
}

/// A request whose path leads to one route in its raw form and to another in its normal
/// form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TwoRoutes;

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

    /// The route of a request for this path and host, which has no port with it.
    pub(crate) fn find(
        &self,
        head: &impl RequestHead,
        path: &RequestPath<'_>,
        host: &str,
    ) -> Result<Option<&Route>, TwoRoutes> {
        let find = |path: &str| {
            let mut routes = self.routes.iter();
            routes.position(|route| route.is_for(head, path, host))
        };
        let found = find(path.raw());
        match path.other().is_none_or(|normal| find(normal) == found) {
            true => Ok(found.map(|at| &self.routes[at])),
            false => Err(TwoRoutes),
        }
    }

    /// Whether the name of a header differs only by `_` for `-` from one that a route asks
    /// about.
    pub(crate) fn has_underscore_variant(&self, name: &str) -> bool {
        let routes = self.routes.iter();
        let mut names = routes.flat_map(|route| &route.matches.headers);
        let is_known = |known: &str| known.eq_ignore_ascii_case(name);
        let is_alike = |known: &str| {
            known
                .replace('_', "-")
                .eq_ignore_ascii_case(&name.replace('_', "-"))
        };
        name.contains('_')
            && names.clone().any(|(known, _)| is_alike(known))
            && !names.any(|(known, _)| is_known(known))
    }
}

impl Route {
    fn is_for(&self, head: &impl RequestHead, path: &str, host: &str) -> bool {
        let RouteMatch {
            paths,
            hosts,
            methods,
            headers,
        } = &self.matches;
        let any = |list_is_empty: bool, fits: &dyn Fn() -> bool| list_is_empty || fits();
        paths.as_ref().is_none_or(|paths| paths.contains(path))
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

    /// Whether a request says twice whom it is from, be it the same.
    pub(crate) fn repeats_identity(&self, head: &impl RequestHead) -> bool {
        let mut names = self.identity_headers();
        names.any(|name| head.header_lines(name).nth(1).is_some())
    }

    /// Refuses a request that says of two whom it is from: an upstream that reads another
    /// line than its filters would take it for somebody who was not counted.
    pub(crate) fn check_identity(&self, head: &impl RequestHead) -> Result<(), BadRequest> {
        let mut names = self.identity_headers();
        names.try_for_each(|name| head.only_value(name).map(drop))
    }

    /// Whether the header of this name says whom a request is from.
    pub(crate) fn is_identity(&self, name: &str) -> bool {
        let mut names = self.identity_headers();
        names.any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Removes all lines but the first of the headers that say whom it is from.
    pub(crate) fn keep_one_identity(&self, headers: &mut HeaderMap) {
        for identity in &self.identities {
            identity.keep_first_line(headers);
        }
    }

    fn identity_headers(&self) -> impl Iterator<Item = &str> {
        let identities = self.identities.iter();
        identities.flat_map(|it| [&*it.user, &*it.api_key])
    }
}

/// The headers by which these filters know whom to count, each pair once.
fn identities<'a>(filters: impl Iterator<Item = &'a config::Filter>) -> Box<[Identity]> {
    let mut known: Vec<Identity> = Vec::new();
    for filter in filters {
        if !known.contains(&filter.identity) {
            known.push(filter.identity.clone());
        }
    }
    known.into()
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
            let path = RequestPath::read(parts.uri.path()).unwrap();
            let route = routes.find(&parts, &path, host_name(host));
            route.unwrap().map(|route| route.id.to_string())
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
    fn both_forms_of_a_path_lead_to_one_route() {
        let routes = routes(
            "gateway:
  routes:
    - { id: api, match: { path: [/api/**] }, upstreams: ['http://h:1'] }
    - { id: other, match: { path: [/x/**, '/a*'] }, upstreams: ['http://h:2'] }
",
        );
        let (parts, ()) = http::Request::new(()).into_parts();
        for (path, expected) in [
            ("/api/x", Ok(Some("api"))),
            ("/api/%78", Ok(Some("api"))),
            ("/api//x;y", Ok(Some("api"))),
            ("/x/%61pi", Ok(Some("other"))),
            ("/none%20", Ok(None)),
            ("/%61pi/x", Err(TwoRoutes)),
            ("/x%2fy", Err(TwoRoutes)),
            ("/api;v=1", Err(TwoRoutes)),
            ("//api", Err(TwoRoutes)),
        ] {
            let path = RequestPath::read(path).unwrap();
            let found = routes.find(&parts, &path, "h");
            let found = found.map(|route| route.map(|route| &*route.id));
            assert_eq!(found, expected, "{path:?}");
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
