//! The filter: which requests it limits, by which rules, and how it answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fluxgate_core::RequestContextBuilder;
use fluxgate_core::path::{PathSet, RequestPath};
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::alike_names::{are_alike, is_plain_name};
use crate::client_ip::{ClientIpSources, TrustedProxies};
use crate::context::{self, ContextError, Identity, Sources};
use crate::handler::{Handler, HeaderNames};
use crate::headers::HeaderFamilies;
#[cfg(feature = "jwt")]
use crate::jwt::Jwt;
use crate::problem::FailedClosedStatus;
use crate::request_head::RequestHead;
use crate::source::SourceList;

const DEFAULT_MAX_WAITS: usize = 100;

/// Limits the requests to a server. Clones share the permits to wait, until
/// [`Filter::max_concurrent_waits`] is set.
#[derive(Clone, Debug, Default)]
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
    pub(crate) permits: Arc<WaitPermits>,
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

    /// Shares the permits to wait with another filter, if as many requests may wait there: with the
    /// filter that this one replaces, whose requests go on.
    pub fn share_permits_with(mut self, other: &Self) -> Self {
        if other.permits.capacity == self.permits.capacity {
            self.permits = Arc::clone(&other.permits);
        }
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

    /// Returns whether the identity or an attribute comes from a call of the Model Context
    /// Protocol.
    pub fn reads_mcp_calls(&self) -> bool {
        self.sources.read_mcp_calls()
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

    /// Returns the address of the client that a request counts for.
    pub fn client_address(&self, head: &impl RequestHead, peer: Option<IpAddr>) -> Option<IpAddr> {
        let (proxies, source) = (&self.trusted_proxies, self.client_ip.of(head));
        if self.trusts_peer {
            proxies.forwarded_client_ip(source, head)
        } else {
            proxies.client_ip(peer, source, head)
        }
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
        let ip = self.client_address(head, peer);
        let path = if self.ignores_case {
            path.borrowed().ignoring_case()
        } else {
            path.borrowed()
        };
        context::from_head(head, path, ip, &self.sources, names, checked)
    }
}

impl Filter {
    /// Returns whether servers may take the header of this name for one that this filter or its
    /// rules read, although it is not. `rule_headers` are in lower case.
    ///
    /// Such a header must not reach the server.
    pub fn is_alike_header(&self, name: &str, rule_headers: &[Box<str>]) -> bool {
        if is_plain_name(name) && !self.reads_odd_headers(rule_headers) {
            return false;
        }
        let mut is_alike = false;
        for known in self.read_headers(rule_headers) {
            if known.eq_ignore_ascii_case(name) {
                return false;
            }
            is_alike |= are_alike(known.as_bytes(), name.as_bytes());
        }
        is_alike
    }

    /// Returns whether this filter or its rules read the header of this name.
    pub fn reads_header(&self, name: &str, rule_headers: &[Box<str>]) -> bool {
        let mut names = self.read_headers(rule_headers);
        names.any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Returns whether this filter or its rules read a header whose name is not
    /// [plain](is_plain_name). Only then may a header with a plain name be alike to one of them.
    pub fn reads_odd_headers(&self, rule_headers: &[Box<str>]) -> bool {
        self.has_odd_source || rule_headers.iter().any(|name| !is_plain_name(name))
    }

    fn find_odd_sources(mut self) -> Self {
        let mut names = self.read_headers(&[]);
        let has_odd_source = names.any(|name| !is_plain_name(name));
        drop(names);
        self.has_odd_source = has_odd_source;
        self
    }

    /// Returns whether a request has a header that servers may take for one that is read, or
    /// for one that proxies set.
    pub fn has_alike_header(&self, head: &impl RequestHead, rule_headers: &[Box<str>]) -> bool {
        let reads_odd = self.reads_odd_headers(rule_headers);
        let mut headers = head.all_headers();
        headers.any(|(name, _)| {
            // Nearly all headers have plain names.
            (reads_odd || !is_plain_name(name))
                && (imitates_proxy_header(name) || self.is_alike_header(name, rule_headers))
        })
    }

    /// Removes all headers whose names servers may take for another, unless they are read by
    /// their exact names. Rules may read any header.
    pub fn remove_unread_headers(&self, headers: &mut HeaderMap, rule_headers: &[Box<str>]) {
        remove_headers(headers, |name| {
            !is_plain_name(name) && !self.reads_header(name, rule_headers)
        });
    }

    /// Removes headers that are alike to one that is read.
    pub fn remove_alike_headers(&self, headers: &mut HeaderMap, rule_headers: &[Box<str>]) {
        remove_headers(headers, |name| self.is_alike_header(name, rule_headers));
    }

    /// Removes all lines but the first of the headers that are sources.
    pub fn keep_first_line(&self, headers: &mut HeaderMap) {
        self.sources.keep_first_line(headers);
    }

    /// Returns the names of all headers that requests are counted by or matched.
    fn read_headers<'a>(&'a self, rule_headers: &'a [Box<str>]) -> impl Iterator<Item = &'a str> {
        let own = self.sources.read_headers();
        let own = own.chain(self.client_ip.header_names());
        own.chain(rule_headers.iter().map(|name| &**name))
    }
}

fn remove_headers(headers: &mut HeaderMap, is_removed: impl Fn(&str) -> bool) {
    let names = headers.keys().filter(|name| is_removed(name.as_str()));
    let names: Vec<HeaderName> = names.cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Returns whether servers may take the header of this name for one that concerns the message
/// itself, or that proxies write, although it is not.
pub fn imitates_proxy_header(name: &str) -> bool {
    const NAMES: &str = "connection content-length content-type cookie expect forwarded host \
        http2-settings keep-alive proxy proxy-authenticate proxy-authorization proxy-connection te \
        trailer transfer-encoding upgrade x-original-url x-real-ip x-request-id x-rewrite-url";
    const PREFIX: &[u8] = b"x-forwarded";
    if is_plain_name(name) {
        return false;
    }
    let name = name.as_bytes();
    let is_other = |byte: &u8| !byte.is_ascii_alphanumeric();
    let start = name.iter().position(|byte| !is_other(byte)).unwrap_or(0);
    let prefix = name.get(start..start + PREFIX.len());
    let has_prefix = prefix.is_some_and(|prefix| are_alike(prefix, PREFIX))
        && name.get(start + PREFIX.len()).is_some_and(is_other);
    has_prefix
        || NAMES
            .split(' ')
            .any(|known| are_alike(known.as_bytes(), name))
}

/// The permits of this process to wait.
#[derive(Debug)]
pub(crate) struct WaitPermits {
    free: Arc<Semaphore>,
    capacity: usize,
}

/// A permit of this process. Dropping it releases it.
pub(crate) type LocalPermit = OwnedSemaphorePermit;

impl Default for WaitPermits {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_WAITS)
    }
}

impl WaitPermits {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(capacity)),
            capacity,
        }
    }

    /// Returns how many permits are taken.
    pub(crate) fn taken(&self) -> usize {
        self.capacity - self.free.available_permits()
    }

    /// Takes a permit, if one is free.
    pub(crate) fn take(&self) -> Option<LocalPermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_ip::ClientIpSource;
    use crate::context::Identity;
    use crate::source::Source;

    #[test]
    fn only_names_that_are_not_read_are_alike() {
        let filter = Filter::default()
            .identity(Identity::default().api_key(Source::header("x_key")))
            .attribute("tenant", Source::header("X-Tenant-Id"))
            .attribute("plan", Source::cookie("x-cookie"))
            .client_ip(ClientIpSource::header("CF-Connecting-IP"));
        let rule_headers = ["x-plan".into(), "x-a_b-c".into()];
        for (name, expected) in [
            ("X_User_Id", true),
            ("x-user_id", true),
            ("X.User.Id", true),
            ("X~User~Id", true),
            ("_X-User-Id", true),
            ("X-User-Id", false),
            ("x_user_idx", false),
            ("xUser_Id", false),
            ("x_key", false),
            ("x-key", true),
            ("X_Tenant-Id", true),
            ("x-tenant-id", false),
            ("x_cookie", false),
            ("_cookie", true),
            ("cookie", false),
            ("cf_connecting_ip", true),
            ("x_forwarded_for", false),
            ("X_PLAN", true),
            ("x-a_b-c", false),
            ("x-a_b_c", true),
            ("x-a-b-c", true),
        ] {
            let is_alike = filter.is_alike_header(name, &rule_headers);
            assert_eq!(is_alike, expected, "{name}");
        }
        let plain = Filter::default();
        assert!(!plain.reads_odd_headers(&[]) && plain.reads_odd_headers(&["a_b".into()]));
        assert!(filter.reads_odd_headers(&[]));
    }

    #[test]
    fn unread_headers_are_those_with_odd_names_that_are_not_read() {
        let names = ["a_b", "x_known", "a-b"].map(HeaderName::from_static);
        let mut headers: HeaderMap = names
            .map(|name| (name, "1".parse().unwrap()))
            .into_iter()
            .collect();
        Filter::default().remove_unread_headers(&mut headers, &["x_known".into()]);
        let mut names: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["a-b", "x_known"]);
    }

    #[test]
    fn headers_of_proxies_cannot_be_imitated() {
        for name in [
            "X_Forwarded_For",
            "X.Forwarded.For",
            "-x-forwarded-anything",
            "X~Original~URL",
            "x-rewrite_url",
            "_Host",
            "Content.Length",
            "Transfer_Encoding",
            "Proxy_",
            "x_request_id",
        ] {
            assert!(imitates_proxy_header(name), "{name}");
        }
        for name in [
            "X-Forwarded-For",
            "Content-Length",
            "Host",
            "x_forwardedfor",
            "x_forwarded",
            "x_original_urls",
            "sec_ch_ua",
        ] {
            assert!(!imitates_proxy_header(name), "{name}");
        }
    }
}
