//! The filters of the config, by name.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fluxgate_http::{Filter, Jwt, JwtError};

use crate::config::{self, Config, JwtKeys, PathPatterns};

/// All filters. Listeners share them, and with them the permits to wait.
#[derive(Clone, Debug)]
pub(crate) struct Filters(Vec<(Box<str>, Arc<Filter>)>);

impl Filters {
    /// Creates the filters of the config.
    ///
    /// # Errors
    /// If the keys of a filter cannot be read.
    pub(crate) fn new(config: &Config) -> Result<Self, FilterError> {
        Self::none().changed_to(config, |_| false)
    }

    fn none() -> Self {
        Self(Vec::new())
    }

    /// Creates the filters of the config. Of these, those that `is_same` says are the same stay;
    /// the others hand on their permits to wait.
    ///
    /// # Errors
    /// If the keys of a filter cannot be read.
    pub(crate) fn changed_to(
        &self,
        config: &Config,
        is_same: impl Fn(&str) -> bool,
    ) -> Result<Self, FilterError> {
        let filters = config.filters.iter().map(|config| {
            let name = config.name.as_str();
            let before = self.get(name);
            if let Some(before) = before.filter(|_| is_same(name)) {
                return Ok((name.into(), Arc::clone(before)));
            }
            let mut filter = filter(config).map_err(|error| FilterError {
                name: config.name.clone(),
                error,
            })?;
            if let Some(before) = before {
                filter = filter.share_permits_with(before);
            }
            Ok((name.into(), Arc::new(filter)))
        });
        filters.collect::<Result<_, _>>().map(Self)
    }

    /// Returns those that are not among the others.
    pub(crate) fn not_in(&self, others: &Self) -> Self {
        let is_new = |filter: &Arc<Filter>| !others.0.iter().any(|(_, it)| Arc::ptr_eq(it, filter));
        let new = self.0.iter().filter(|(_, filter)| is_new(filter));
        Self(new.cloned().collect())
    }

    /// Returns how many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Fetches the keys that verify tokens, and keeps them up to date from then on. Waits no
    /// longer than `max_wait`, because the service must start even if an issuer is down.
    pub(crate) async fn load_keys(&self, max_wait: Duration) {
        let tokens = self.0.iter().filter_map(|(_, filter)| filter.tokens());
        let loads = tokens.cloned().map(|jwt| {
            // The task outlives the timeout. The renewal that it starts logs failures.
            tokio::spawn(async move { drop(jwt.load().await) })
        });
        let loads: Vec<_> = loads.collect();
        let all = async {
            for load in loads {
                // A panic is already logged.
                let _ = load.await;
            }
        };
        let _ = tokio::time::timeout(max_wait, all).await;
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

/// The active filters, which a reload replaces.
#[derive(Clone, Debug)]
pub(crate) struct LiveFilters(Arc<ArcSwap<Filters>>);

impl LiveFilters {
    pub(crate) fn new(filters: Filters) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(filters)))
    }

    /// Returns the active filters.
    pub(crate) fn current(&self) -> Arc<Filters> {
        self.0.load_full()
    }

    /// Uses these filters for requests from now on.
    pub(crate) fn replace(&self, filters: Filters) {
        self.0.store(Arc::new(filters));
    }
}

/// Why a filter cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("filters.{name}.jwt: {error}")]
pub(crate) struct FilterError {
    name: String,
    error: JwtError,
}

/// Creates the filter that the config describes.
fn filter(config: &config::Filter) -> Result<Filter, JwtError> {
    let mut filter = Filter::default()
        .include(Arc::clone(config.include.set()))
        .exclude(Arc::clone(config.exclude.set()))
        .ignore_case(config.ignore_case)
        .identity(config.sources.identity())
        .trusted_proxies(config.trusted_proxies.iter().copied())
        .client_ip(config.client_ip.clone())
        .headers(config.headers)
        .failed_closed_status(config.failed_closed_status)
        .max_concurrent_waits(config.max_concurrent_waits);
    for (name, source) in config.sources.attributes() {
        filter = filter.attribute(name, source.clone());
    }
    if let Some(config) = &config.jwt {
        filter = filter.jwt(jwt(config)?);
    }
    Ok(match &config.rule_set {
        Some(name) => filter.rule_set(name.as_str()),
        // Everything passes. That is logged at the start, by the name of the filter, and not
        // again by the filter itself.
        None => filter.exclude(Arc::clone(PathPatterns::all().set())),
    })
}

/// Creates the verifier that the config describes.
fn jwt(config: &config::Jwt) -> Result<Jwt, JwtError> {
    let jwt = match &config.keys {
        JwtKeys::JwksFile(path) => Jwt::from_jwks_file(path),
        JwtKeys::JwksUrl(url) => Jwt::from_jwks_url(url.as_str()),
        JwtKeys::SecretFile(path) => Jwt::from_secret_file(path),
    }?;
    let jwt = jwt
        .token_from(config.from.clone())
        .leeway(config.leeway)
        .on_invalid(config.on_invalid);
    let issuers = config.issuers.iter().map(String::as_str);
    let jwt = issuers.fold(jwt, Jwt::issuer);
    let audiences = config.audiences.iter().map(String::as_str);
    Ok(audiences.fold(jwt, Jwt::audience))
}
