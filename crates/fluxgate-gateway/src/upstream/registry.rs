//! All upstreams that were ever configured, with their state.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::route_upstream::{RouteUpstream, ServerState};
use super::server::Upstream;
use crate::config::{UpstreamConfig, UpstreamTarget};
use crate::observer::UpstreamObserver;

/// Creates upstreams. Those with the same target share their load, their health and their idle
/// connections.
#[derive(Debug)]
pub(crate) struct UpstreamRegistry {
    observer: Arc<dyn UpstreamObserver>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By their numbers.
    servers: Vec<(UpstreamTarget, Arc<ServerState>)>,
    /// By the route and the target, so that counters never decrease.
    of_routes: HashMap<(Box<str>, String), Arc<RouteUpstream>>,
}

impl UpstreamRegistry {
    /// Creates a registry that reports changes of upstreams to `observer`.
    pub(crate) fn new(observer: Arc<dyn UpstreamObserver>) -> Self {
        Self {
            observer,
            known: Mutex::default(),
        }
    }

    /// Returns an upstream of a route.
    pub(crate) fn upstream(&self, route: &str, config: UpstreamConfig) -> Arc<Upstream> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { servers, of_routes } = &mut *known;
        let UpstreamConfig { target, weight } = config;
        let number = servers.iter().position(|(known, _)| *known == target);
        let number = number.unwrap_or_else(|| {
            servers.push((target.clone(), Arc::default()));
            servers.len() - 1
        });
        let server = Arc::clone(&servers[number].1);
        let of_route = of_routes.entry((route.into(), target.to_string()));
        let of_route = of_route.or_insert_with(|| {
            let label = target.host().unwrap_or_else(|| target.to_string());
            let observer = Arc::clone(&self.observer);
            Arc::new(RouteUpstream::new(route, &label, observer))
        });
        let mut upstream = Upstream::new(number, target, server, Arc::clone(of_route));
        upstream.weight = weight.max(1);
        Arc::new(upstream)
    }
}
