//! The filter: which requests it limits, by which rules, and how it answers.

pub(crate) mod alike_headers;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fluxgate_core::RequestContextBuilder;
use fluxgate_core::path::{PathSet, RequestPath};
use ipnet::IpNet;

use crate::client_ip::{ClientIpSources, TrustedProxies};
use crate::context::{self, ContextError, Identity, Sources};
use crate::handler::{Handler, HeaderNames};
use crate::headers::HeaderFamilies;
#[cfg(feature = "jwt")]
use crate::jwt::Jwt;
use crate::problem::FailedClosedStatus;
use crate::request_head::RequestHead;
use crate::source::SourceList;
use crate::wait_permits::WaitPermits;

const DEFAULT_MAX_WAITS: usize = 100;

/// Limits the requests to a server. Clones share the permits to wait, until
/// [`Filter::max_concurrent_waits`] is set.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The rule set that decides. Without one, everything passes.
    rule_set: Option<Box<str>>,
    /// Whether a warning about the missing rule set was logged.
    has_warned: Arc<AtomicBool>,
    /// The paths to limit; by default all that begin with `/`.
    include: Option<Arc<PathSet>>,
    /// The paths to skip, even if they are included.
    exclude: Arc<PathSet>,
    /// Whether these patterns, and those of the rules, are compared without ASCII case.
    ignores_case: bool,
    sources: Sources,
    trusted_proxies: TrustedProxies,
    /// Whether every peer is trusted.
    trusts_peer: bool,
    client_ip: ClientIpSources,
    /// Whether one of these headers has a name that is not plain.
    has_odd_source: bool,
    headers: HeaderFamilies,
    failed_closed: FailedClosedStatus,
    permits: Arc<WaitPermits>,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            rule_set: None,
            has_warned: Arc::default(),
            include: None,
            exclude: Arc::default(),
            ignores_case: false,
            sources: Sources::default(),
            trusted_proxies: TrustedProxies::default(),
            trusts_peer: false,
            client_ip: ClientIpSources::default(),
            has_odd_source: false,
            headers: HeaderFamilies::default(),
            failed_closed: FailedClosedStatus::default(),
            permits: Arc::new(WaitPermits::new(DEFAULT_MAX_WAITS)),
        }
    }
}

impl Filter {
    /// Decides by this rule set.
    pub fn rule_set(mut self, name: impl Into<Box<str>>) -> Self {
        self.rule_set = Some(name.into());
        self
    }

    /// Limits these paths only.
    pub fn include(mut self, paths: impl Into<Arc<PathSet>>) -> Self {
        self.include = Some(paths.into());
        self
    }

    /// Skips these paths.
    pub fn exclude(mut self, paths: impl Into<Arc<PathSet>>) -> Self {
        self.exclude = paths.into();
        self
    }

    /// Compares the patterns of this filter and of its rule set without ASCII case, for servers
    /// that route without case.
    pub fn ignore_case(mut self, ignores_case: bool) -> Self {
        self.ignores_case = ignores_case;
        self
    }

    /// Identifies the sender of a request by these sources.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.sources.set_identity(identity);
        self.find_odd_sources()
    }

    /// Reads an attribute of the context from this source, or from the first of these that a
    /// request has, in place of earlier sources for the same attribute. A request without a value
    /// lacks the attribute.
    pub fn attribute(mut self, name: impl Into<Box<str>>, sources: impl Into<SourceList>) -> Self {
        self.sources.set_attribute(name.into(), sources.into());
        self.find_odd_sources()
    }

    /// Verifies the tokens of requests with these settings. Sources may refer to their claims.
    #[cfg(feature = "jwt")]
    pub fn jwt(mut self, jwt: Jwt) -> Self {
        self.sources.set_jwt(jwt);
        self.find_odd_sources()
    }

    /// Returns how the tokens of requests are verified, if they are.
    #[cfg(feature = "jwt")]
    pub fn tokens(&self) -> Option<&Jwt> {
        self.sources.jwt()
    }

    /// Trusts proxies in these networks to report the client's address.
    pub fn trusted_proxies(mut self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        self.trusted_proxies = TrustedProxies::new(networks);
        self
    }

    /// Trusts every peer to report the client's address, for servers that proxies call on
    /// behalf of their clients. Without a report, the address is unknown.
    pub fn trust_peer(mut self) -> Self {
        self.trusts_peer = true;
        self
    }

    /// Sets the header in which proxies report the client's address, or several: the first that a
    /// request has counts.
    pub fn client_ip(mut self, sources: impl Into<ClientIpSources>) -> Self {
        self.client_ip = sources.into();
        self.find_odd_sources()
    }

    /// Sets the header families that responses carry.
    pub fn headers(mut self, families: HeaderFamilies) -> Self {
        self.headers = families;
        self
    }

    /// Sets the status of requests that are denied because the limiter failed closed; 503 by
    /// default.
    pub fn failed_closed_status(mut self, status: FailedClosedStatus) -> Self {
        self.failed_closed = status;
        self
    }

    /// Sets how many requests may wait at a time in this process; 100 by default.
    pub fn max_concurrent_waits(mut self, most: usize) -> Self {
        self.permits = Arc::new(WaitPermits::new(most));
        self
    }

    /// Returns the name of the rule set, if any.
    pub fn rule_set_name(&self) -> Option<&str> {
        self.rule_set.as_deref()
    }

    /// Returns the header families that responses carry.
    pub fn families(&self) -> HeaderFamilies {
        self.headers
    }

    /// Returns the status of requests that are denied because the limiter failed closed.
    pub fn failed_closed(&self) -> FailedClosedStatus {
        self.failed_closed
    }

    /// Returns a claim that a source refers to although no tokens are verified, if any.
    pub fn unverified_claim(&self) -> Option<&str> {
        self.sources.unverified_claim()
    }

    /// Returns the names, in lower case, of the headers that the identity, the attributes and
    /// the token come from.
    pub fn source_headers(&self) -> impl Iterator<Item = &str> {
        self.sources.header_names()
    }

    /// Returns whether a peer is one of the trusted proxies.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.trusts(peer)
    }

    /// Returns how many requests wait now.
    pub fn waiting(&self) -> usize {
        self.permits.taken()
    }

    /// Returns the rules that decide requests for this path, if the filter applies to them.
    pub fn rules_for<H: Handler>(&self, handler: &H, path: &RequestPath<'_>) -> Option<H::Rules> {
        Some(handler.rules(self.rule_set_for(path)?))
    }

    /// Returns the rule set that decides requests for this path, if the filter applies to them.
    pub fn rule_set_for(&self, path: &RequestPath<'_>) -> Option<&str> {
        if self.ignores_case && !path.ignores_case() {
            return self.rule_set_for(&path.borrowed().ignoring_case());
        }
        if self.exclude.contains_both(path) {
            self.log_skipped(path, "excluded");
            return None;
        }
        let included = match &self.include {
            Some(include) => include.contains_either(path),
            None => path.raw().starts_with('/'),
        };
        if !included {
            self.log_skipped(path, "not included");
            return None;
        }
        if self.rule_set.is_none() && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("a filter has no rule set: everything passes");
        }
        self.rule_set.as_deref()
    }

    /// Logs that the filter skips a request, to show why a path is not limited.
    fn log_skipped(&self, path: &RequestPath<'_>, reason: &'static str) {
        tracing::debug!(
            rule_set = self.rule_set.as_deref(),
            path = path.raw(),
            reason,
            "the filter skips the request"
        );
    }

    /// Starts the context of a request with the headers in `names`. Those in `checked` must not
    /// have two values.
    pub(crate) fn context<'a>(
        &'a self,
        head: &'a impl RequestHead,
        path: &'a RequestPath<'_>,
        peer: Option<IpAddr>,
        names: HeaderNames<'a>,
        checked: &[Box<str>],
    ) -> Result<RequestContextBuilder<'a>, ContextError> {
        let (proxies, source) = (&self.trusted_proxies, self.client_ip.of(head));
        let ip = if self.trusts_peer {
            proxies.forwarded_client_ip(source, head)
        } else {
            proxies.client_ip(peer, source, head)
        };
        let path = if self.ignores_case {
            path.borrowed().ignoring_case()
        } else {
            path.borrowed()
        };
        context::from_head(head, path, ip, &self.sources, names, checked)
    }

    /// Returns the permits to wait.
    pub(crate) fn permits(&self) -> &WaitPermits {
        &self.permits
    }
}
