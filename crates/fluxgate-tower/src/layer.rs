//! The layer: what a user sets, and where it goes.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

use fluxgate_core::{Limiter, PathSet, Pattern, RequestContextBuilder, Store};
use http::request::Parts;
use ipnet::IpNet;
use tower_layer::Layer;

#[cfg(doc)]
use crate::body::ResponseBody;
use crate::body::{SameBody, WrapBody};
use crate::client_ip::ClientIpSource;
use crate::context::Identity;
use crate::customizer::{Chain, Customizer};
use crate::filter::Filter;
use crate::handler::Handler;
use crate::headers::HeaderFamilies;
use crate::peer::PeerSource;
use crate::problem::FailedClosedStatus;
use crate::service::RateLimit;

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
/// Without a rule set everything passes. The peer's address is looked for in the
/// request's extensions ([`PeerAddr`](crate::PeerAddr), and axum's `ConnectInfo`
/// with the feature `axum`); [`RateLimitLayer::peer`] looks elsewhere. All clones
/// of a layer, and all services that it makes, share the places of those who wait.
#[derive(Debug)]
pub struct RateLimitLayer<H, K = WrapBody> {
    settings: Arc<Settings<H>>,
    bodies: PhantomData<fn() -> K>,
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
            bodies: PhantomData,
        }
    }
}

/// What all services of a layer share.
#[derive(Clone, Debug)]
pub(crate) struct Settings<H> {
    pub(crate) handler: H,
    pub(crate) filter: Filter,
    pub(crate) customizers: Chain,
    pub(crate) peer: PeerSource,
}

impl<S: Store + 'static> RateLimitLayer<Arc<Limiter<S>>> {
    /// Lets this limiter decide.
    pub fn new(limiter: impl Into<Arc<Limiter<S>>>) -> Self {
        Self::with_handler(limiter.into())
    }
}

impl<H: Handler + Clone> RateLimitLayer<H> {
    /// Lets somebody else decide: a service that is asked, for one.
    pub fn with_handler(handler: H) -> Self {
        Self::with_settings(Arc::new(Settings {
            handler,
            filter: Filter::default(),
            customizers: Chain::default(),
            peer: PeerSource::default(),
        }))
    }
}

impl<H: Handler + Clone, K> RateLimitLayer<H, K> {
    /// Makes refusals with the same type of body as the service has, which must be
    /// made of bytes for that, as axum's is. It costs less than a [`ResponseBody`]
    /// around it, and fits where the type must not change: around a whole axum
    /// application, for one, where requests are limited before they are routed.
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

    /// Asks this rule set.
    pub fn rule_set(self, name: impl Into<Box<str>>) -> Self {
        self.with(|filter| filter.rule_set(name))
    }

    /// Limits requests for these paths only, in the patterns of the rules; all
    /// others pass untouched.
    ///
    /// # Panics
    /// If one of them is no pattern.
    pub fn include(self, patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.with(|filter| filter.include(path_set(patterns)))
    }

    /// Lets requests for these paths pass untouched.
    ///
    /// # Panics
    /// If one of them is no pattern.
    pub fn exclude(self, patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.with(|filter| filter.exclude(path_set(patterns)))
    }

    /// Reads who a request is from in these headers.
    pub fn identity(self, identity: Identity) -> Self {
        self.with(|filter| filter.identity(identity))
    }

    /// Takes the word of these proxies about the client's address: networks such
    /// as `10.0.0.0/8`, or single addresses.
    ///
    /// # Panics
    /// If one of them is neither.
    pub fn trusted_proxies(self, networks: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let networks: Vec<_> = networks
            .into_iter()
            .map(|text| network(text.as_ref()))
            .collect();
        self.with(|filter| filter.trusted_proxies(networks))
    }

    /// Where those proxies say whom they forward for; `X-Forwarded-For` if
    /// nothing is said.
    pub fn client_ip(self, source: ClientIpSource) -> Self {
        self.with(|filter| filter.client_ip(source))
    }

    /// What responses tell.
    pub fn headers(self, families: HeaderFamilies) -> Self {
        self.with(|filter| filter.headers(families))
    }

    /// Sets the status of refusals that failed closed (the store failed, and the rule
    /// set's `on_error` is `deny`); 503 by default.
    pub fn failed_closed_status(self, status: FailedClosedStatus) -> Self {
        self.with(|filter| filter.failed_closed_status(status))
    }

    /// How many requests may wait at a time; 100 if nothing is said.
    pub fn max_concurrent_waits(self, most: usize) -> Self {
        self.with(|filter| filter.max_concurrent_waits(most))
    }

    /// Finds the peer's address of a request in another way.
    pub fn peer(mut self, find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.settings).peer = PeerSource::by(find);
        self
    }

    /// Changes what is known of a request before it is decided. The first that is
    /// given comes first.
    pub fn customize<F>(self, customize: F) -> Self
    where
        F: for<'a> Fn(RequestContextBuilder<'a>, &'a Parts) -> RequestContextBuilder<'a>
            + Send
            + Sync
            + 'static,
    {
        self.customize_with(customize)
    }

    /// The same, by a type.
    pub fn customize_with(mut self, customizer: impl Customizer + 'static) -> Self {
        Arc::make_mut(&mut self.settings)
            .customizers
            .push(customizer);
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
        RateLimit::new(inner, Arc::clone(&self.settings))
    }
}

fn path_set(patterns: impl IntoIterator<Item = impl AsRef<str>>) -> PathSet {
    let patterns = patterns.into_iter().map(|text| {
        let parsed = Pattern::parse(text.as_ref());
        parsed.unwrap_or_else(|error| panic!("{error}"))
    });
    PathSet::new(patterns.collect())
}

fn network(text: &str) -> IpNet {
    let address = || text.parse::<IpAddr>().map(IpNet::from).ok();
    let network = text.parse().ok().or_else(address);
    network.unwrap_or_else(|| panic!("`{text}` is no network, such as 10.0.0.0/8 or fd00::/8"))
}
