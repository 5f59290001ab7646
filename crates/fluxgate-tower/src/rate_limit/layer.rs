//! The layer: its settings, and the services that it creates.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use fluxgate_core::path::{PathSet, Pattern};
use fluxgate_core::{
    InvalidRules, KeyPart, Limiter, MemoryStore, OnMissingKey, PatternError, Quota,
    RequestContextBuilder, Rule, RuleSet, Store,
};
#[cfg(feature = "jwt")]
use fluxgate_http::Jwt;
use fluxgate_http::{
    ClientIpSources, FailedClosedStatus, Filter, Handler, HeaderFamilies, Identity, NetworkError,
    SourceList, parse_network,
};
use http::Response;
use http::request::Parts;
use ipnet::IpNet;
use tower_layer::Layer;

#[cfg(doc)]
use super::future::ResponseBody;
use super::future::{SameBody, WrapBody};
use super::rejection::{Denial, DenialHandler};
use super::service::{Customizer, CustomizerChain, PeerSource, RateLimit, Settings};

/// Limits the requests to a service.
///
/// ```
/// use axum::{Router, routing::get};
/// use fluxgate_core::{Limiter, MemoryStore, RuleSets};
/// use fluxgate_tower::RateLimitLayer;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # fn tenant_of(req: &http::request::Parts) -> String {
/// #     let value = req.headers.get("x-tenant").and_then(|value| value.to_str().ok());
/// #     value.unwrap_or_default().to_owned()
/// # }
/// # async fn hello() -> &'static str { "hello" }
/// # let rules = "
/// # rule_sets:
/// #   api-limits:
/// #     rules: [ { id: a, scope: global, bands: [ { capacity: 1, window: 1s } ] } ]
/// # ";
/// let limiter = Limiter::new(RuleSets::from_yaml(rules)?, MemoryStore::default());
///
/// let app: Router = Router::new()
///     .route("/api/hello", get(hello))
///     .layer(RateLimitLayer::new(limiter).rule_set("api-limits").customize(|ctx, req| ctx.attribute("tenant", tenant_of(req))));
/// # Ok(())
/// # }
/// ```
///
/// Without a rule set everything passes. The peer's address comes from the request's
/// extensions ([`PeerAddr`](crate::PeerAddr), or axum's `ConnectInfo` with the feature `axum`),
/// unless [`RateLimitLayer::peer`] is set. All clones of a layer, and all services that it
/// creates, share the permits to wait.
#[derive(Debug)]
pub struct RateLimitLayer<H, K = WrapBody> {
    settings: Arc<Settings<H>>,
    make_body: PhantomData<fn() -> K>,
}

impl<H, K> Clone for RateLimitLayer<H, K> {
    fn clone(&self) -> Self {
        Self::with_settings(Arc::clone(&self.settings))
    }
}

impl<H, K> RateLimitLayer<H, K> {
    fn with_settings(settings: Arc<Settings<H>>) -> Self {
        Self {
            settings,
            make_body: PhantomData,
        }
    }
}

impl<S: Store + 'static> RateLimitLayer<Limiter<S>> {
    /// Creates a layer on which this limiter decides.
    pub fn new(limiter: Limiter<S>) -> Self {
        Self::with_handler(limiter)
    }
}

impl<H: Handler + Clone> RateLimitLayer<H> {
    /// Creates a layer on which another handler decides, such as a remote service.
    ///
    /// ```
    /// use fluxgate_tower::{RateLimitLayer, RemoteHandler};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let handler = RemoteHandler::new("http://10.0.0.5:8081")?;
    /// let limits = RateLimitLayer::with_handler(handler).rule_set("api-limits");
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_handler(handler: H) -> Self {
        Self::with_settings(Arc::new(Settings {
            handler,
            filter: Filter::default(),
            customizers: CustomizerChain::default(),
            peer: PeerSource::default(),
            key_rule: None,
            requires_key: false,
            on_denied: None,
        }))
    }
}

impl<H: Handler + Clone, K> RateLimitLayer<H, K> {
    /// Keeps the body type of the inner service, which must implement `From<Bytes>` as axum's
    /// does. That costs less than wrapping it in a [`ResponseBody`], and is needed where the
    /// type must not change: around a whole axum application, for example, to limit requests
    /// before they are routed.
    ///
    /// ```no_run
    /// # use std::net::SocketAddr;
    /// # use axum::{Router, ServiceExt, extract::Request};
    /// # use fluxgate_core::{Limiter, MemoryStore, RuleSets};
    /// # use fluxgate_tower::RateLimitLayer;
    /// # use tower::Layer;
    /// # async fn serve(limiter: Limiter<MemoryStore>, app: Router) -> std::io::Result<()> {
    /// let layer = RateLimitLayer::new(limiter).rule_set("api-limits").same_body();
    /// let app = layer.layer(app);
    /// let app = ServiceExt::<Request>::into_make_service_with_connect_info::<SocketAddr>(app);
    /// axum::serve(tokio::net::TcpListener::bind("127.0.0.1:3000").await?, app).await
    /// # }
    /// ```
    pub fn same_body(self) -> RateLimitLayer<H, SameBody> {
        RateLimitLayer::with_settings(self.settings)
    }

    /// Decides by this rule set.
    pub fn rule_set(self, name: impl Into<Box<str>>) -> Self {
        self.with(|filter| filter.rule_set(name))
    }

    /// Limits requests for these paths only, given as patterns like those in rules. All others
    /// are skipped.
    ///
    /// # Panics
    /// If a pattern is invalid.
    pub fn include(self, patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.try_include(patterns)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Limits requests for these paths only, like [`RateLimitLayer::include`].
    ///
    /// # Errors
    /// If a pattern is invalid.
    pub fn try_include(
        self,
        patterns: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, PatternError> {
        let paths = path_set(patterns)?;
        Ok(self.with(|filter| filter.include(paths)))
    }

    /// Skips requests for these paths.
    ///
    /// ```
    /// # use fluxgate_core::Quota;
    /// # use fluxgate_tower::RateLimitLayer;
    /// let limits = RateLimitLayer::by_peer_ip(Quota::per_second(10))
    ///     .include(["/api/**"])
    ///     .exclude(["/api/health", "/api/*/status"]);
    /// ```
    ///
    /// # Panics
    /// If a pattern is invalid.
    pub fn exclude(self, patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.try_exclude(patterns)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Skips requests for these paths, like [`RateLimitLayer::exclude`].
    ///
    /// # Errors
    /// If a pattern is invalid.
    pub fn try_exclude(
        self,
        patterns: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, PatternError> {
        let paths = path_set(patterns)?;
        Ok(self.with(|filter| filter.exclude(paths)))
    }

    /// Compares the patterns of this layer and those of its rules without ASCII case, for services
    /// that route without case.
    ///
    /// ```
    /// # use fluxgate_core::Quota;
    /// # use fluxgate_tower::RateLimitLayer;
    /// let limits = RateLimitLayer::by_peer_ip(Quota::per_second(10))
    ///     .include(["/login"])
    ///     .ignore_case(true);
    /// ```
    pub fn ignore_case(self, ignores_case: bool) -> Self {
        self.with(|filter| filter.ignore_case(ignores_case))
    }

    /// Identifies the sender of a request by these sources.
    ///
    /// ```
    /// use fluxgate_core::{Quota, Rule};
    /// use fluxgate_tower::{Identity, RateLimitLayer, Source};
    ///
    /// # fn main() -> Result<(), fluxgate_core::InvalidRules> {
    /// let per_user = Rule::new("per-user").per_user().band(Quota::per_second(10));
    /// let limits = RateLimitLayer::by_rules([per_user])?
    ///     .identity(Identity::default().user(Source::cookie("session")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn identity(self, identity: Identity) -> Self {
        self.with(|filter| filter.identity(identity))
    }

    /// Reads an attribute of the context from this source, or from the first of these that a
    /// request has, in place of earlier sources for the same attribute. A request without a value
    /// lacks the attribute. Customizers may change it.
    ///
    /// ```
    /// use fluxgate_core::{KeyPart, Quota, Rule};
    /// use fluxgate_tower::{RateLimitLayer, Source};
    ///
    /// # fn main() -> Result<(), fluxgate_core::InvalidRules> {
    /// let per_tenant = Rule::new("per-tenant")
    ///     .key([KeyPart::Attribute("tenant".into())])
    ///     .band(Quota::per_second(10));
    /// let limits = RateLimitLayer::by_rules([per_tenant])?
    ///     .attribute("tenant", Source::query("tenant"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn attribute(self, name: impl Into<Box<str>>, sources: impl Into<SourceList>) -> Self {
        self.with(|filter| filter.attribute(name, sources))
    }

    /// Verifies the tokens of requests with these settings (feature `jwt`), so that identities
    /// and attributes can come from their claims: see [`Jwt`].
    #[cfg(feature = "jwt")]
    pub fn jwt(self, jwt: Jwt) -> Self {
        self.with(|filter| filter.jwt(jwt))
    }

    /// Trusts these proxies to report the client's address: networks such as `10.0.0.0/8`, or
    /// single addresses.
    ///
    /// ```
    /// # use fluxgate_core::Quota;
    /// # use fluxgate_tower::RateLimitLayer;
    /// let limits = RateLimitLayer::by_peer_ip(Quota::per_second(10))
    ///     .trusted_proxies(["10.0.0.0/8", "192.0.2.1"]);
    /// ```
    ///
    /// # Panics
    /// If a text is neither.
    pub fn trusted_proxies(self, networks: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.try_trusted_proxies(networks)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Trusts these proxies, like [`RateLimitLayer::trusted_proxies`].
    ///
    /// # Errors
    /// If a text is neither a network nor an address.
    pub fn try_trusted_proxies(
        self,
        networks: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, NetworkError> {
        let networks = networks.into_iter();
        let networks = networks.map(|text| parse_network(text.as_ref()));
        let networks: Vec<IpNet> = networks.collect::<Result<_, _>>()?;
        Ok(self.with(|filter| filter.trusted_proxies(networks)))
    }

    /// Sets the header in which proxies report the client's address; `X-Forwarded-For` by
    /// default. Of several, the first that a request has counts.
    pub fn client_ip(self, sources: impl Into<ClientIpSources>) -> Self {
        self.with(|filter| filter.client_ip(sources))
    }

    /// Sets the header families that responses carry.
    ///
    /// ```
    /// # use fluxgate_core::Quota;
    /// use fluxgate_tower::{HeaderFamilies, RateLimitLayer};
    ///
    /// let limits = RateLimitLayer::by_peer_ip(Quota::per_second(10)).headers(HeaderFamilies {
    ///     legacy: false,
    ///     ..HeaderFamilies::default()
    /// });
    /// ```
    pub fn headers(self, families: HeaderFamilies) -> Self {
        self.with(|filter| filter.headers(families))
    }

    /// Sets the status of requests that are denied because the store failed and the rule set's
    /// `on_error` is `deny`; 503 by default.
    pub fn failed_closed_status(self, status: FailedClosedStatus) -> Self {
        self.with(|filter| filter.failed_closed_status(status))
    }

    /// Sets how many requests may wait at a time; 100 by default.
    pub fn max_concurrent_waits(self, most: usize) -> Self {
        self.with(|filter| filter.max_concurrent_waits(most))
    }

    /// Finds the peer's address of a request by this function.
    pub fn peer(mut self, find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.settings).peer = PeerSource::new(find);
        self
    }

    /// Changes the context of a request before it is decided. Customizers run in the order in
    /// which they are added.
    ///
    /// ```
    /// # use fluxgate_core::{KeyPart, Quota, Rule};
    /// # use fluxgate_tower::RateLimitLayer;
    /// # fn main() -> Result<(), fluxgate_core::InvalidRules> {
    /// /// What a layer before this one has verified.
    /// #[derive(Clone)]
    /// struct Account {
    ///     plan: &'static str,
    /// }
    ///
    /// # let free = Rule::new("free").match_attribute("plan", "free").per_ip().band(Quota::per_second(1));
    /// let limits = RateLimitLayer::by_rules([free])?.customize(|context, request| {
    ///     let account = request.extensions.get::<Account>();
    ///     context.attribute("plan", account.map_or("free", |account| account.plan))
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn customize<F>(self, customize: F) -> Self
    where
        F: for<'a> Fn(RequestContextBuilder<'a>, &'a Parts) -> RequestContextBuilder<'a>
            + Send
            + Sync
            + 'static,
    {
        self.customize_with(customize)
    }

    /// Adds a customizer that is a type, like [`RateLimitLayer::customize`].
    pub fn customize_with(mut self, customizer: impl Customizer + 'static) -> Self {
        Arc::make_mut(&mut self.settings)
            .customizers
            .push(customizer);
        self
    }

    /// Responds to denied requests by this function. It gets the head of the request, as the
    /// inner service would have, and the [`Denial`].
    ///
    /// ```
    /// # use fluxgate_core::{Limiter, MemoryStore};
    /// # use fluxgate_tower::RateLimitLayer;
    /// # use http::Response;
    /// # fn layer(limiter: Limiter<MemoryStore>) {
    /// let layer = RateLimitLayer::new(limiter)
    ///     .rule_set("api-limits")
    ///     .on_denied(|request, denial| {
    ///         let text = match denial.retry_after() {
    ///             Some(wait) => format!("too many {} requests; retry in {wait:?}", request.method),
    ///             None => "this request is too large".to_owned(),
    ///         };
    ///         let mut response = Response::new(text);
    ///         *response.status_mut() = denial.status();
    ///         response
    ///     });
    /// # }
    /// ```
    ///
    /// The body is anything that becomes `Bytes`: a `String`, a `Vec<u8>`, a `&'static str`. The
    /// responses of axum's `IntoResponse` have another body, which cannot become `Bytes` at once.
    /// For JSON, serialize the value and set the header:
    ///
    /// ```
    /// # use fluxgate_core::Quota;
    /// # use fluxgate_tower::RateLimitLayer;
    /// use axum::http::{HeaderValue, Response, header::CONTENT_TYPE};
    ///
    /// let limits = RateLimitLayer::global(Quota::per_second(10)).on_denied(|_, denial| {
    ///     let body = serde_json::json!({ "error": "slow down", "limit": denial.limit() });
    ///     let mut response = Response::new(body.to_string());
    ///     *response.status_mut() = denial.status();
    ///     let json = HeaderValue::from_static("application/json");
    ///     response.headers_mut().insert(CONTENT_TYPE, json);
    ///     response
    /// });
    /// ```
    ///
    /// The layer adds the limit headers that the response lacks, and sets `Content-Length`.
    /// gRPC requests, whose clients understand gRPC statuses only, and requests that are
    /// rejected with 400, or with 401 because of their token, are answered as without this
    /// function.
    pub fn on_denied<F, B>(mut self, respond: F) -> Self
    where
        F: Fn(&Parts, &Denial) -> Response<B> + Send + Sync + 'static,
        B: Into<Bytes>,
    {
        Arc::make_mut(&mut self.settings).on_denied = Some(DenialHandler::new(respond));
        self
    }

    fn with(mut self, change: impl FnOnce(Filter) -> Filter) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        settings.filter = change(std::mem::take(&mut settings.filter));
        self
    }
}

impl<S, H, K> Layer<S> for RateLimitLayer<H, K> {
    type Service = RateLimit<S, H, K>;

    fn layer(&self, inner: S) -> Self::Service {
        if let Some(claim) = self.settings.filter.unverified_claim() {
            tracing::warn!(
                "the claim `{claim}` is always missing: `RateLimitLayer::jwt` is not set"
            );
        }
        RateLimit::new(inner, Arc::clone(&self.settings))
    }
}

fn path_set(patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Result<PathSet, PatternError> {
    let patterns = patterns.into_iter();
    let patterns = patterns.map(|text| Pattern::parse(text.as_ref()));
    Ok(PathSet::new(patterns.collect::<Result<_, _>>()?))
}

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
    /// clients count as one, and the layer logs a warning once.
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
    /// their address, unless the layer [requires](RateLimitLayer::require_key) it. A client can
    /// choose what it sends, so use a header that something trustworthy sets or checks.
    ///
    /// # Panics
    /// If this cannot be the name of a header.
    pub fn by_header(name: &str, quotas: impl IntoIterator<Item = Quota>) -> Self {
        let rule = Rule::new("per-header").key([KeyPart::Header(name.into())]);
        Self::of_key(rule, quotas)
    }

    /// Limits each key that `find` returns by itself. Requests without a key are limited by
    /// their address, unless the layer [requires](RateLimitLayer::require_key) one.
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
        let layer = Self::of_key(rule, quotas);
        layer.customize(move |context, request| match find(request) {
            Some(key) => context.attribute(KEY, key),
            None => context,
        })
    }

    /// Limits requests by these rules. A rule can deny requests without a key; the layer of this
    /// example answers them with 401 instead of 429:
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
        Ok(Self::new(limiter_of(rules)?).rule_set(RULE_SET))
    }

    /// Creates a layer that [can require](RateLimitLayer::require_key) its key.
    fn of_key(rule: Rule, quotas: impl IntoIterator<Item = Quota>) -> Self {
        let rule = quotas.into_iter().fold(rule, Rule::band);
        let mut layer = Self::of_rule(rule.clone(), []);
        Arc::make_mut(&mut layer.settings).key_rule = Some(Box::new(rule));
        layer
    }

    fn of_rule(rule: Rule, quotas: impl IntoIterator<Item = Quota>) -> Self {
        let rule = quotas.into_iter().fold(rule, Rule::band);
        let layer = Self::by_rules([rule]);
        layer.unwrap_or_else(|invalid| panic!("{invalid}"))
    }
}

impl<K> RateLimitLayer<Limiter, K> {
    /// Answers requests without a key with 401 instead of limiting them by their address. They
    /// are not counted. A gRPC request gets the status 16 (UNAUTHENTICATED).
    ///
    /// ```
    /// use fluxgate_core::Quota;
    /// use fluxgate_tower::RateLimitLayer;
    ///
    /// let limits = RateLimitLayer::by_header("x-api-key", Quota::per_second(10)).require_key();
    /// ```
    ///
    /// [`RateLimitLayer::on_denied`] may answer them in another way, for example to add
    /// `WWW-Authenticate`: their [`Denial`](crate::Denial) has a
    /// [missing key](crate::Denial::missing_key) and the status 401.
    ///
    /// # Panics
    /// If neither [`RateLimitLayer::by`] nor [`RateLimitLayer::by_header`] created the layer. In
    /// rules, use [`OnMissingKey::Deny`].
    pub fn require_key(mut self) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        let rule = settings.key_rule.as_deref().cloned();
        let rule = rule.expect("`require_key` is for layers of `by` and `by_header`");
        settings.handler = limiter_of([rule.on_missing_key(OnMissingKey::Deny)])
            .unwrap_or_else(|invalid| panic!("{invalid}"));
        settings.requires_key = true;
        self
    }
}

fn limiter_of(rules: impl IntoIterator<Item = Rule>) -> Result<Limiter, InvalidRules> {
    let set = RuleSet::builder(RULE_SET);
    let set = rules.into_iter().fold(set, |set, rule| set.rule(rule));
    Ok(Limiter::new(set.build()?, MemoryStore::default()))
}
