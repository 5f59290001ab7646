//! Layers that need no rule set of their own: one limit for each key.

use fluxgate_core::{InvalidRules, KeyPart, Limiter, MemoryStore, Quota, Rule, RuleSet};
use http::request::Parts;

use super::layer::RateLimitLayer;

/// The name of the rule set, which the headers of responses do not show.
const RULE_SET: &str = "layer";
/// The attribute that holds a key that a function has found.
const KEY: &str = "fluxgate.key";

/// Limits without a rule file, in the memory of this process. For another store, an observer
/// or rules that change, use [`RateLimitLayer::new`] with a limiter.
///
/// ```
/// use axum::{Router, routing::get};
/// use fluxgate_core::Quota;
/// use fluxgate_tower::RateLimitLayer;
///
/// let limits = RateLimitLayer::by_header("x-api-key", Quota::per_second(10).burst(50));
/// let app: Router = Router::new().route("/", get(async || "hello")).layer(limits);
/// ```
impl RateLimitLayer<Limiter> {
    /// Limits all requests together.
    pub fn global(quotas: impl IntoIterator<Item = Quota>) -> Self {
        Self::of_rule(Rule::new("global").global(), quotas)
    }

    /// Limits each client address by itself: that of the peer or, behind
    /// [`RateLimitLayer::trusted_proxies`], the one that they report. With axum, this needs the
    /// feature `axum` and `into_make_service_with_connect_info`; without an address, all
    /// clients count as one.
    ///
    /// ```
    /// # use fluxgate_core::Quota;
    /// # use fluxgate_tower::RateLimitLayer;
    /// let limits = RateLimitLayer::by_peer_ip([Quota::per_second(10), Quota::per_hour(5_000)]);
    /// ```
    pub fn by_peer_ip(quotas: impl IntoIterator<Item = Quota>) -> Self {
        Self::of_rule(Rule::new("per-ip").per_ip(), quotas)
    }

    /// Limits each value of a header by itself. Requests without the header are limited by
    /// their address. A client can choose what it sends, so use a header that something
    /// trustworthy sets or checks.
    ///
    /// # Panics
    /// If this cannot be the name of a header.
    pub fn by_header(name: &str, quotas: impl IntoIterator<Item = Quota>) -> Self {
        let rule = Rule::new("per-header").key([KeyPart::Header(name.into())]);
        Self::of_rule(rule, quotas)
    }

    /// Limits each key that `find` returns by itself. Requests without a key are limited by
    /// their address.
    ///
    /// ```
    /// use fluxgate_core::Quota;
    /// use fluxgate_tower::RateLimitLayer;
    ///
    /// let limits = RateLimitLayer::by(
    ///     |request| request.uri.host().map(str::to_owned),
    ///     [Quota::per_second(10), Quota::per_day(100_000)],
    /// );
    /// ```
    pub fn by<F>(find: F, quotas: impl IntoIterator<Item = Quota>) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        let rule = Rule::new("per-key").key([KeyPart::Attribute(KEY.into())]);
        let layer = Self::of_rule(rule, quotas);
        layer.customize(move |context, request| match find(request) {
            Some(key) => context.attribute(KEY, key),
            None => context,
        })
    }

    /// Limits requests by these rules. The layer of this example answers requests without a
    /// token with 401:
    ///
    /// ```
    /// use fluxgate_core::{KeyPart, OnMissingKey, Quota, Rule};
    /// use fluxgate_tower::RateLimitLayer;
    /// use http::{Response, StatusCode};
    ///
    /// # fn main() -> Result<(), fluxgate_core::InvalidRules> {
    /// let per_token = Rule::new("per-token")
    ///     .key([KeyPart::Header("authorization".into())])
    ///     .on_missing_key(OnMissingKey::Deny)
    ///     .band(Quota::per_second(10));
    /// let limits = RateLimitLayer::by_rules([per_token])?.on_denied(|_request, denial| {
    ///     let mut response = Response::new("denied");
    ///     *response.status_mut() = if denial.missing_key() {
    ///         StatusCode::UNAUTHORIZED
    ///     } else {
    ///         denial.status()
    ///     };
    ///     response
    /// });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use fluxgate_core::{Quota, Rule};
    /// use fluxgate_tower::RateLimitLayer;
    ///
    /// # fn main() -> Result<(), fluxgate_core::InvalidRules> {
    /// let logins = Rule::new("logins")
    ///     .match_path("/login")
    ///     .per_ip()
    ///     .band(Quota::per_minute(5));
    /// let searches = Rule::new("searches")
    ///     .match_path("/search/**")
    ///     .per_user()
    ///     .band(Quota::per_second(2))
    ///     .wait_up_to(Duration::from_secs(1));
    /// let limits = RateLimitLayer::by_rules([logins, searches])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn by_rules(rules: impl IntoIterator<Item = Rule>) -> Result<Self, InvalidRules> {
        let set = RuleSet::builder(RULE_SET);
        let set = rules.into_iter().fold(set, |set, rule| set.rule(rule));
        let limiter = Limiter::new(set.build()?, MemoryStore::default());
        Ok(Self::new(limiter).rule_set(RULE_SET))
    }

    fn of_rule(rule: Rule, quotas: impl IntoIterator<Item = Quota>) -> Self {
        let rule = quotas.into_iter().fold(rule, Rule::band);
        let layer = Self::by_rules([rule]);
        layer.unwrap_or_else(|invalid| panic!("{invalid}"))
    }
}
