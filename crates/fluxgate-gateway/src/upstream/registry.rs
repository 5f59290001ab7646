//! The upstreams of the configuration, with their state.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::route_upstream::{RouteUpstream, ServerState};
use super::server::Upstream;
use crate::config::{UpstreamConfig, UpstreamTarget};
use crate::observer::UpstreamObserver;

/// Creates upstreams. Those with the same target share their load, their health and their idle
/// connections, also with those of the configuration before.
#[derive(Debug)]
pub(crate) struct UpstreamRegistry {
    observer: Arc<dyn UpstreamObserver>,
    servers: Vec<(UpstreamTarget, Arc<ServerState>)>,
    /// The number of servers so far. None is used twice, because a request of an old configuration
    /// may still use a server that has been removed.
    numbers: usize,
    /// By the route and the target.
    of_routes: HashMap<(Box<str>, String), Arc<RouteUpstream>>,
}

impl UpstreamRegistry {
    /// Creates a registry that reports changes of upstreams to `observer`.
    pub(crate) fn new(observer: Arc<dyn UpstreamObserver>) -> Self {
        Self {
            observer,
            servers: Vec::new(),
            numbers: 0,
            of_routes: HashMap::new(),
        }
    }

    /// Returns an upstream of a route.
    pub(crate) fn upstream(&mut self, route: &str, config: UpstreamConfig) -> Arc<Upstream> {
        let UpstreamConfig { target, weight } = config;
        let known = self.servers.iter().find(|(known, _)| *known == target);
        let server = known.map(|(_, server)| Arc::clone(server));
        let server = server.unwrap_or_else(|| {
            let server = Arc::new(ServerState::new(self.numbers));
            self.numbers += 1;
            self.servers.push((target.clone(), Arc::clone(&server)));
            server
        });
        let of_routes = &mut self.of_routes;
        let of_route = of_routes.entry((route.into(), target.to_string()));
        let of_route = of_route.or_insert_with(|| {
            let label = target.host().unwrap_or_else(|| target.to_string());
            let observer = Arc::clone(&self.observer);
            Arc::new(RouteUpstream::new(route, &label, observer))
        });
        let mut upstream = Upstream::new(target, server, Arc::clone(of_route));
        upstream.weight = weight.max(1);
        Arc::new(upstream)
    }

    /// Forgets all other upstreams than these. Their idle connections are closed, and the others
    /// when their requests have ended.
    pub(crate) fn retain<'u>(&mut self, active: impl Iterator<Item = &'u Arc<Upstream>>) {
        let (mut servers, mut of_routes) = (HashSet::new(), HashSet::new());
        for upstream in active {
            servers.insert(upstream.number);
            of_routes.insert(Arc::as_ptr(&upstream.of_route));
        }
        self.servers.retain(|(_, server)| {
            let stays = servers.contains(&server.number);
            if !stays {
                server.remove();
            }
            stays
        });
        self.of_routes
            .retain(|_, of_route| of_routes.contains(&Arc::as_ptr(of_route)));
    }
}
