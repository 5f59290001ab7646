//! Finds the route of a request.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::path::RequestPath;
use fluxgate_http::{BadRequest, Filter, RequestHead, are_alike, is_plain_name};
use fluxgate_llm::Api;
use quanta::Instant;

use crate::config::{
    CorsConfig, HeaderEdits, HealthConfig, LlmConfig, McpConfig, RetryConfig, RewriteConfig,
    RouteBodyLimit, RouteConfig, RouteMatch, Timeouts, UpstreamTarget,
};
use crate::counts::{ResponseCounts, Samples};
use crate::upstream::{Balancer, UpstreamRegistry};

/// The largest body that is kept to be sent again.
const MAX_KEPT_BODY: u64 = 64 * 1024;

/// The routes. The first that matches a request applies.
#[derive(Debug)]
pub(crate) struct Routes {
    routes: Vec<Arc<Route>>,
    /// Whether a route matches a header whose name is not plain.
    pub(crate) has_odd_header: bool,
    /// Whether a route matches hosts.
    matches_hosts: bool,
}

/// The filters and upstreams of the requests that match.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) id: Box<str>,
    pub(crate) upstreams: Balancer,
    /// The host of requests that name none.
    pub(crate) default_host: String,
    pub(crate) filters: Vec<Arc<Filter>>,
    /// How calls to language models are counted, if they are.
    pub(crate) llm: Option<LlmConfig>,
    /// How calls of the Model Context Protocol are read, if they are.
    pub(crate) mcp: Option<McpConfig>,
    /// The active health check, if there is one.
    pub(crate) health: Option<HealthConfig>,
    pub(crate) retry: Option<RetryConfig>,
    pub(crate) timeouts: Timeouts,
    /// The largest body of a request in bytes.
    pub(crate) max_body: Option<u64>,
    pub(crate) rewrite: RewriteConfig,
    pub(crate) request_headers: HeaderEdits,
    pub(crate) response_headers: HeaderEdits,
    pub(crate) cors: Option<CorsConfig>,
    pub(crate) counts: Arc<RouteCounts>,
    matches: RouteMatch,
}

/// What became of the requests of a route.
#[derive(Debug)]
pub(crate) struct RouteCounts {
    pub(crate) responses: ResponseCounts,
    /// Attempts after the first.
    pub(crate) retries: AtomicU64,
    /// Responses and retries at past points in time.
    samples: Samples<2>,
}

impl RouteCounts {
    fn new() -> Self {
        Self {
            responses: ResponseCounts::new(),
            retries: AtomicU64::new(0),
            samples: Samples::new(),
        }
    }

    fn counters(&self) -> [u64; 2] {
        [self.responses.total(), self.retries.load(Ordering::Relaxed)]
    }

    /// Returns how many responses and retries there were within the window.
    pub(crate) fn recent(&self, window: Duration) -> [u64; 2] {
        let samples = &self.samples;
        samples.growth(Instant::now(), window, self.counters())
    }

    /// Keeps the counters of this moment.
    pub(crate) fn sample(&self, now: Instant) {
        self.samples.push(now, self.counters());
    }
}

/// What routes keep when the configuration changes: counters, and the state of upstreams.
#[derive(Debug)]
pub(crate) struct RouteRegistry {
    upstreams: UpstreamRegistry,
    /// By the id of the route.
    counts: HashMap<Box<str>, Arc<RouteCounts>>,
}

impl RouteRegistry {
    pub(crate) fn new(upstreams: UpstreamRegistry) -> Self {
        Self {
            upstreams,
            counts: HashMap::new(),
        }
    }

    fn counts(&mut self, route: &str) -> Arc<RouteCounts> {
        let counts = self.counts.entry(route.into());
        Arc::clone(counts.or_insert_with(|| Arc::new(RouteCounts::new())))
    }

    /// Forgets all other routes than these, with their upstreams.
    pub(crate) fn retain(&mut self, active: &[Arc<Route>]) {
        let ids: HashSet<_> = active.iter().map(|route| &route.id).collect();
        self.counts.retain(|id, _| ids.contains(id));
        let upstreams = active.iter().flat_map(|route| route.upstreams.upstreams());
        self.upstreams.retain(upstreams);
    }
}

/// The raw form of a path matches another route than its normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AmbiguousRoute;

/// What applies to routes that do not say otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteDefaults {
    pub(crate) timeouts: Timeouts,
    pub(crate) max_body: RouteBodyLimit,
}

impl Routes {
    /// Creates the routes of a configuration.
    pub(crate) fn new(
        routes: Vec<RouteConfig>,
        defaults: RouteDefaults,
        registry: &mut RouteRegistry,
    ) -> Self {
        let routes = routes.into_iter().map(|route| {
            let mut targets = route.upstreams.iter().map(|it| &it.target);
            let default_host = targets.find_map(UpstreamTarget::host);
            let servers = route.upstreams.into_iter();
            let servers = servers.map(|config| registry.upstreams.upstream(&route.id, config));
            let max_body = route.body_bytes.unwrap_or(defaults.max_body);
            Arc::new(Route {
                default_host: default_host.unwrap_or_default(),
                upstreams: Balancer::new(servers.collect()),
                filters: route.filters,
                llm: route.llm,
                mcp: route.mcp,
                health: route.health,
                retry: route.retry,
                timeouts: route.timeouts.within(defaults.timeouts),
                max_body: max_body.map(u64::from),
                rewrite: route.rewrite,
                request_headers: route.request_headers,
                response_headers: route.response_headers,
                cors: route.cors,
                counts: registry.counts(&route.id),
                id: route.id.into(),
                matches: route.matches,
            })
        });
        let routes: Vec<_> = routes.collect();
        let mut routes = Self {
            matches_hosts: routes.iter().any(|route| !route.matches.hosts.is_empty()),
            routes,
            has_odd_header: false,
        };
        let has_odd_header = routes.headers().any(|name| !is_plain_name(name));
        routes.has_odd_header = has_odd_header;
        routes
    }

    /// Returns the route of a request with this method, for this path and host.
    pub(crate) fn find(
        &self,
        head: &impl RequestHead,
        method: &str,
        path: &RequestPath<'_>,
        host: &str,
    ) -> Result<Option<&Arc<Route>>, AmbiguousRoute> {
        let host = if self.matches_hosts {
            host_name(host)
        } else {
            host
        };
        let find = |path: &str| {
            let mut routes = self.routes.iter();
            routes.position(|route| route.is_for(head, method, path, host))
        };
        let mut forms = path.exact_forms();
        let found = forms.next().and_then(find);
        if forms.all(|form| find(form) == found) {
            Ok(found.map(|at| &self.routes[at]))
        } else {
            Err(AmbiguousRoute)
        }
    }

    /// Returns all routes, in the order of the config.
    pub(crate) fn all(&self) -> &[Arc<Route>] {
        &self.routes
    }

    /// Returns whether servers may take the header of this name for one that a route matches,
    /// although it is not.
    pub(crate) fn has_alike_header(&self, name: &str) -> bool {
        let is_alike = |known: &str| are_alike(known.as_bytes(), name.as_bytes());
        self.headers().any(is_alike) && !self.matches_header(name)
    }

    /// Returns whether a route matches the header of this name.
    pub(crate) fn matches_header(&self, name: &str) -> bool {
        self.headers().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Returns the names of the headers that routes match.
    fn headers(&self) -> impl Iterator<Item = &str> {
        let headers = self.routes.iter().flat_map(|route| &route.matches.headers);
        headers.map(|(name, _)| &**name)
    }
}

impl Route {
    fn is_for(&self, head: &impl RequestHead, method: &str, path: &str, host: &str) -> bool {
        let RouteMatch {
            paths,
            hosts,
            methods,
            headers,
        } = &self.matches;
        paths
            .as_ref()
            .is_none_or(|paths| paths.contains(Some(path)))
            && (hosts.is_empty() || hosts.iter().any(|it| it.matches(host)))
            && (methods.is_empty() || methods.iter().any(|known| known == method))
            && { headers.iter() }.all(|(name, test)| test.matches(head.header_lines(name)))
    }

    /// Returns whether calls at this path are counted. A connection that is upgraded could carry
    /// calls that nothing reads.
    pub(crate) fn counts_calls(&self, path: &RequestPath<'_>) -> bool {
        let is_api = |path: &str| Api::of_path(path).is_some();
        let filter = self.mcp.and_then(|mcp| self.filters.get(mcp.filter));
        let reads_messages = filter.is_some_and(|filter| filter.rule_set_for(path).is_some());
        reads_messages || (self.llm.is_some() && path.either(is_api))
    }

    /// Returns whether a body is read before it is sent, so that it can be sent again.
    pub(crate) fn keeps_body(&self, method: &str, length: Option<u64>) -> bool {
        let is_small = length.is_some_and(|length| length <= MAX_KEPT_BODY);
        let retry = self.retry.as_ref().filter(|_| is_small);
        retry.is_some_and(|retry| retry.methods.iter().any(|known| known == method))
    }

    /// Returns whether the peer is a trusted proxy.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.filters.iter().any(|filter| filter.trusts(peer))
    }

    /// Returns whether a header that identifies the sender is repeated with the same value.
    ///
    /// # Errors
    /// If its values differ: an upstream that reads another line than the filters would take
    /// the request for one of another sender.
    pub(crate) fn repeats_identity(&self, head: &impl RequestHead) -> Result<bool, BadRequest> {
        let mut repeats = false;
        if !head.may_repeat_headers() {
            return Ok(repeats);
        }
        for name in self.source_headers() {
            let mut lines = head.header_lines(name);
            let first = lines.next();
            for line in lines {
                repeats = true;
                if Some(line) != first {
                    return Err(BadRequest::ConflictingValues);
                }
            }
        }
        Ok(repeats)
    }

    /// Returns whether the header of this name identifies the sender.
    pub(crate) fn is_identity(&self, name: &str) -> bool {
        let mut names = self.source_headers();
        names.any(|known| known.eq_ignore_ascii_case(name))
    }

    fn source_headers(&self) -> impl Iterator<Item = &str> {
        let filters = self.filters.iter();
        filters.flat_map(|filter| filter.source_headers())
    }
}

/// Returns a host without its port and without the dot that may end a name: `a.example` of
/// `a.example.:80`, `[::1]` of `[::1]:80`.
fn host_name(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use fluxgate_core::path::{PathSet, Pattern};

    use super::*;
    use crate::config::{HeaderTest, HostPattern, RouteTimeouts};
    use crate::observer::{UpstreamChange, UpstreamObserver};

    fn routes(routes: Vec<RouteConfig>) -> Routes {
        let upstreams = UpstreamRegistry::new(Arc::new(Unobserved));
        let defaults = RouteDefaults {
            timeouts: Timeouts::default(),
            max_body: None,
        };
        Routes::new(routes, defaults, &mut RouteRegistry::new(upstreams))
    }

    #[derive(Debug)]
    struct Unobserved;

    impl UpstreamObserver for Unobserved {
        fn upstream_changed(&self, _: &UpstreamChange<'_>) {}
    }

    fn route(id: &str, matches: RouteMatch) -> RouteConfig {
        RouteConfig {
            id: id.into(),
            matches,
            upstreams: vec![UpstreamTarget::Echo.into()],
            health: None,
            retry: None,
            timeouts: RouteTimeouts::default(),
            body_bytes: None,
            rewrite: RewriteConfig::default(),
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
            cors: None,
            filters: Vec::new(),
            llm: None,
            mcp: None,
        }
    }

    fn paths(patterns: &[&str]) -> Option<Arc<PathSet>> {
        let patterns = patterns.iter().map(|text| Pattern::parse(text).unwrap());
        Some(Arc::new(PathSet::new(patterns.collect())))
    }

    #[test]
    fn the_first_route_that_matches_applies() {
        let hosts = ["a.example", "*.b.example"].map(|host| HostPattern::parse(host).unwrap());
        let routes = routes(vec![
            route(
                "host",
                RouteMatch {
                    hosts: hosts.into(),
                    ..RouteMatch::default()
                },
            ),
            route(
                "header",
                RouteMatch {
                    headers: vec![("x-plan".into(), HeaderTest::AnyOf(vec!["pro".into()]))],
                    ..RouteMatch::default()
                },
            ),
            route(
                "method",
                RouteMatch {
                    methods: vec!["PUT".into()],
                    paths: paths(&["/x/**"]),
                    ..RouteMatch::default()
                },
            ),
            route(
                "path",
                RouteMatch {
                    paths: paths(&["/x/**"]),
                    ..RouteMatch::default()
                },
            ),
        ]);
        let found = |method: &str, path: &str, host: &str, plans: &[&str]| {
            let mut request = http::Request::builder().method(method).uri(path);
            for plan in plans {
                request = request.header("X-Plan", *plan);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let path = RequestPath::read(parts.uri.path()).unwrap();
            let route = routes.find(&parts, method, &path, host);
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
        let by_path = |id, patterns: &[&str]| {
            let matches = RouteMatch {
                paths: paths(patterns),
                ..RouteMatch::default()
            };
            route(id, matches)
        };
        let routes = routes(vec![
            by_path("api", &["/api/**"]),
            by_path("other", &["/x/**", "/a*"]),
            by_path("slash", &["/slash/"]),
        ]);
        let (parts, ()) = http::Request::new(()).into_parts();
        for (path, expected) in [
            ("/api/x", Ok(Some("api"))),
            ("/api/%78", Ok(Some("api"))),
            ("/api//x;y", Ok(Some("api"))),
            ("/x/%61pi", Ok(Some("other"))),
            ("/none%20", Ok(None)),
            ("/%61pi/x", Err(AmbiguousRoute)),
            ("/x%2fy", Err(AmbiguousRoute)),
            ("/api;v=1", Err(AmbiguousRoute)),
            ("//api", Err(AmbiguousRoute)),
            // Routes distinguish a slash at the end, if they do, in both forms.
            ("/none/", Ok(None)),
            ("/slash/", Ok(Some("slash"))),
            ("/%73lash/", Err(AmbiguousRoute)),
            ("/slash//", Err(AmbiguousRoute)),
            ("/sl%2561sh", Ok(None)),
        ] {
            let path = RequestPath::read(path).unwrap();
            let found = routes.find(&parts, "GET", &path, "h");
            let found = found.map(|route| route.map(|route| &*route.id));
            assert_eq!(found, expected, "{path:?}");
        }
    }

    #[test]
    fn a_host_name_has_no_port_and_no_final_dot() {
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
