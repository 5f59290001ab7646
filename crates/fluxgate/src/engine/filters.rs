//! The filters of the config, by name.

use std::sync::Arc;

use fluxgate_tower::internals::Filter;

use crate::config::{self, Config, PathPatterns};

/// All filters. Listeners share them, and with them the permits to wait.
#[derive(Clone, Debug)]
pub(crate) struct Filters(Vec<(Box<str>, Arc<Filter>)>);

impl Filters {
    /// Creates the filters of the config.
    pub(crate) fn new(config: &Config) -> Self {
        let filters = config.filters.iter();
        let filters = filters.map(|it| (it.name.as_str().into(), Arc::new(filter(it))));
        Self(filters.collect())
    }

    /// Returns the same filters, with the same permits to wait, for callers that are proxies.
    pub(crate) fn trusting_their_peers(&self) -> Self {
        let filters = self.0.iter().map(|(name, filter)| {
            let filter = Filter::clone(filter).trust_peer();
            (name.clone(), Arc::new(filter))
        });
        Self(filters.collect())
    }

    /// Returns the filter of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Filter>> {
        let mut filters = self.0.iter();
        let named = filters.find(|(known, _)| **known == *name);
        named.map(|(_, filter)| filter)
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the only filter, if there is just one.
    pub(crate) fn only(&self) -> Option<&Arc<Filter>> {
        match &self.0[..] {
            [(_, filter)] => Some(filter),
            _ => None,
        }
    }
}

/// Creates the filter that the config describes.
fn filter(config: &config::Filter) -> Filter {
    let filter = Filter::default()
        .include(Arc::clone(config.include.set()))
        .exclude(Arc::clone(config.exclude.set()))
        .identity(config.identity.clone())
        .trusted_proxies(config.trusted_proxies.iter().copied())
        .client_ip(config.client_ip.clone())
        .headers(config.headers)
        .failed_closed_status(config.failed_closed_status)
        .max_concurrent_waits(config.max_concurrent_waits);
    match &config.rule_set {
        Some(name) => filter.rule_set(name.as_str()),
        // Everything passes. That is logged at the start, by the name of the filter, and not
        // again by the filter itself.
        None => filter.exclude(Arc::clone(PathPatterns::all().set())),
    }
}
