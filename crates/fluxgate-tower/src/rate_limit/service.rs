//! The service that limits the requests to another.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use fluxgate_core::path::RequestPath;
use fluxgate_core::{RequestContextBuilder, Rule};
use fluxgate_http::{
    Evaluation, Filter, FilterOutcome, Handler, HeaderNames, HeaderValues, IncomingRequest, Report,
    RequestHold, is_plain_name,
};
use http::request::Parts;
use http::{Request, Response};
use tower_service::Service;

use super::future::{MakeBody, PendingOutcome, ResponseFuture, WrapBody};
use super::rejection::{DenialHandler, Rejection, RejectionFormat};

/// Limits the requests to an inner service. Created by a
/// [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Debug)]
pub struct RateLimit<S, H, K = WrapBody> {
    inner: S,
    settings: Arc<Settings<H>>,
    make_body: PhantomData<fn() -> K>,
}

/// The settings that all services of a layer share.
#[derive(Clone, Debug)]
pub(super) struct Settings<H> {
    pub(super) handler: H,
    pub(super) filter: Filter,
    pub(super) customizers: CustomizerChain,
    pub(super) peer: PeerSource,
    /// The rule of a layer that limits by one key.
    pub(super) key_rule: Option<Box<Rule>>,
    /// Whether a request without a part of its key is answered with 401.
    pub(super) requires_key: bool,
    /// Responds to denied requests in place of the layer.
    pub(super) on_denied: Option<DenialHandler>,
}

impl<H> Settings<H> {
    fn rejection_format(&self) -> RejectionFormat {
        RejectionFormat {
            families: self.filter.families(),
            failed_closed: self.filter.failed_closed(),
            requires_key: self.requires_key,
            on_denied: self.on_denied.clone(),
        }
    }
}

impl<S: Clone, H, K> Clone for RateLimit<S, H, K> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.settings))
    }
}

impl<S, H, K> RateLimit<S, H, K> {
    pub(super) fn new(inner: S, settings: Arc<Settings<H>>) -> Self {
        Self {
            inner,
            settings,
            make_body: PhantomData,
        }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Replaces the inner service, which is ready and is not called, by a clone that is not. A
    /// ready service may hold a permit that other requests need.
    fn release_inner(&mut self)
    where
        S: Clone,
    {
        self.inner = self.inner.clone();
    }
}

impl<S, H, K, B, ResBody> Service<Request<B>> for RateLimit<S, H, K>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    H: Handler + 'static,
    H::Rules: 'static,
    H::Report: 'static,
    K: MakeBody<ResBody>,
{
    type Response = Response<K::Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S, H::Report, B, K>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let settings = &self.settings;
        let (mut head, body) = request.into_parts();
        let mut reads_odd_headers = false;
        match evaluate(settings, &head, &mut reads_odd_headers) {
            FirstOutcome::Allowed(headers, hold) => {
                if headers.is_some() {
                    sanitize(settings, &mut head, reads_odd_headers);
                }
                if let Some(hold) = &hold {
                    head.extensions.insert(hold.clone());
                }
                let response = self.inner.call(Request::from_parts(head, body));
                ResponseFuture::calling(response, headers, hold.into())
            }
            FirstOutcome::Rejected(rejection) => {
                if settings.on_denied.is_some() {
                    sanitize(settings, &mut head, reads_odd_headers);
                }
                let response = settings.rejection_format().response(&head, &rejection);
                self.release_inner();
                ResponseFuture::rejected(response)
            }
            FirstOutcome::Pending(evaluation) => {
                sanitize(settings, &mut head, reads_odd_headers);
                let request = Request::from_parts(head, body);
                let format = settings.rejection_format();
                self.release_inner();
                // A clone, because it need not be ready before the evaluation ends.
                let inner = self.inner.clone();
                ResponseFuture::evaluating(evaluation, inner, request, format)
            }
        }
    }
}

/// The evaluation of a request, as far as it is known at once.
enum FirstOutcome<R> {
    /// The request is forwarded. A filter that applies adds these headers to its response.
    Allowed(Option<HeaderValues>, Option<RequestHold>),
    Rejected(Rejection<R>),
    Pending(PendingOutcome<R>),
}

impl<R: Report> FirstOutcome<R> {
    /// An evaluation that has ended.
    fn now<H: Handler<Report = R>>(
        filter: &Filter,
        handler: &H,
        outcome: FilterOutcome<R>,
    ) -> Self {
        match outcome {
            FilterOutcome::Skipped => Self::Allowed(None, None),
            FilterOutcome::Allowed(report) => {
                let headers = filter.families().values(&report);
                Self::Allowed(Some(headers), handler.hold(&report))
            }
            FilterOutcome::Denied(report) => Self::Rejected(Rejection::Denied(report)),
            FilterOutcome::BadRequest(bad) => Self::Rejected(Rejection::BadRequest(bad)),
            FilterOutcome::InvalidToken => Self::Rejected(Rejection::InvalidToken),
        }
    }
}

/// Evaluates a request at once, if nothing must be awaited. Sets whether a header is read whose
/// name is not plain.
fn evaluate<H>(
    settings: &Arc<Settings<H>>,
    head: &Parts,
    reads_odd_headers: &mut bool,
) -> FirstOutcome<H::Report>
where
    H: Handler + 'static,
    H::Rules: 'static,
    H::Report: 'static,
{
    let Settings {
        handler,
        filter,
        customizers,
        peer,
        ..
    } = &**settings;
    let path = match RequestPath::read(head.uri.path()) {
        Ok(path) => path,
        // Without a rule set there is no limit to evade.
        Err(_) if filter.rule_set_name().is_none() => return FirstOutcome::Allowed(None, None),
        Err(error) => return FirstOutcome::Rejected(Rejection::BadRequest(error.into())),
    };
    let Some(rules) = filter.rules_for(handler, &path) else {
        return FirstOutcome::Allowed(None, None);
    };
    *reads_odd_headers = filter.reads_odd_headers(known_headers(handler, &rules));
    let request = IncomingRequest {
        head,
        path: &path,
        peer: peer.peer_ip(head),
    };
    let customize = |context| customizers.customize(context, head);
    let evaluation = match Evaluation::new(filter, handler, &rules, request, customize) {
        Ok(evaluation) => evaluation,
        Err(error) => return FirstOutcome::now(filter, handler, error.into()),
    };
    if evaluation.context().ip().is_none() && handler.counts_addresses(&rules) {
        peer.warn_of_no_address();
    }
    let pointer = || SharedHandler(Arc::clone(settings));
    let pending = match evaluation.try_evaluate(pointer) {
        Ok(outcome) => return FirstOutcome::now(filter, handler, outcome),
        Err(pending) => pending.into_owned(),
    };
    let settings = Arc::clone(settings);
    FirstOutcome::Pending(Box::pin(async move {
        let Settings {
            handler, filter, ..
        } = &*settings;
        let outcome = pending.finish(filter, handler, &rules).await;
        let hold = match &outcome {
            FilterOutcome::Allowed(report) => handler.hold(report),
            _ => None,
        };
        (outcome, hold)
    }))
}

/// Removes header lines by which the inner service could identify another sender than the
/// filter did.
fn sanitize<H: Handler>(settings: &Settings<H>, head: &mut Parts, reads_odd_headers: bool) {
    let Settings {
        handler, filter, ..
    } = settings;
    filter.keep_first_line(&mut head.headers);
    let mut names = head.headers.keys();
    if reads_odd_headers || names.any(|name| !is_plain_name(name.as_str())) {
        let rules = handler.rules(filter.rule_set_name().unwrap_or_default());
        let known = known_headers(handler, &rules);
        filter.remove_alike_headers(&mut head.headers, known);
        if matches!(handler.header_names(&rules), HeaderNames::All) {
            filter.remove_unread_headers(&mut head.headers, known);
        }
    }
}

/// Returns the headers that rules are known to read.
fn known_headers<'r, H: Handler>(handler: &'r H, rules: &'r H::Rules) -> &'r [Box<str>] {
    match handler.header_names(rules) {
        HeaderNames::Only(names) => names,
        // Any other header may be read as well.
        HeaderNames::All => handler.checked_header_names(rules),
    }
}

/// A pointer to the handler of the settings.
struct SharedHandler<H>(Arc<Settings<H>>);

impl<H> Deref for SharedHandler<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0.handler
    }
}

/// The address of the peer, as an extension of requests. Servers that accept connections
/// insert it.
///
/// ```
/// use std::net::SocketAddr;
///
/// use fluxgate_tower::PeerAddr;
///
/// fn with_peer<B>(mut request: http::Request<B>, peer: SocketAddr) -> http::Request<B> {
///     request.extensions_mut().insert(PeerAddr(peer));
///     request
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

type FindPeer = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

/// How the layer finds the peer of a request: by a function, or in the request's extensions.
#[derive(Clone, Default)]
pub(super) struct PeerSource {
    find: Option<Arc<FindPeer>>,
    has_warned: Arc<AtomicBool>,
}

impl PeerSource {
    pub(super) fn new(find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self {
            find: Some(Arc::new(find)),
            has_warned: Arc::default(),
        }
    }

    pub(super) fn peer_ip(&self, request: &Parts) -> Option<IpAddr> {
        match &self.find {
            Some(find) => find(request),
            None => peer_in_extensions(request),
        }
    }

    /// Warns, once, that a request has no address although rules count by it.
    fn warn_of_no_address(&self) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "no address of the client: all requests that are limited by address count as one \
                 client; with axum, enable the feature `axum` of fluxgate-tower and serve with \
                 `into_make_service_with_connect_info::<SocketAddr>()`, otherwise insert a \
                 `PeerAddr` into the extensions of requests or set `RateLimitLayer::peer`"
            );
        }
    }
}

fn peer_in_extensions(request: &Parts) -> Option<IpAddr> {
    let extensions = &request.extensions;
    if let Some(PeerAddr(address)) = extensions.get() {
        return Some(address.ip());
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(address)) =
        extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()
    {
        return Some(address.ip());
    }
    None
}

impl fmt::Debug for PeerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.find {
            Some(_) => "PeerSource(function)",
            None => "PeerSource(extensions)",
        })
    }
}

/// Changes the context of a request before it is decided. It may add the tenant from a header,
/// the address from `CF-Connecting-IP` or the user of a verified token.
///
/// ```
/// use fluxgate_core::RequestContextBuilder;
/// use fluxgate_tower::Customizer;
/// use http::request::Parts;
///
/// /// Counts requests by the region of the server.
/// struct Region(&'static str);
///
/// impl Customizer for Region {
///     fn customize<'a>(
///         &self,
///         context: RequestContextBuilder<'a>,
///         _: &'a Parts,
///     ) -> RequestContextBuilder<'a> {
///         context.attribute("region", self.0)
///     }
/// }
/// ```
///
/// A closure needs no type: [`RateLimitLayer::customize`](crate::RateLimitLayer::customize).
pub trait Customizer: Send + Sync {
    /// Returns the changed context.
    fn customize<'a>(
        &self,
        context: RequestContextBuilder<'a>,
        request: &'a Parts,
    ) -> RequestContextBuilder<'a>;
}

impl<F> Customizer for F
where
    F: for<'a> Fn(RequestContextBuilder<'a>, &'a Parts) -> RequestContextBuilder<'a> + Send + Sync,
{
    fn customize<'a>(
        &self,
        context: RequestContextBuilder<'a>,
        request: &'a Parts,
    ) -> RequestContextBuilder<'a> {
        self(context, request)
    }
}

/// Applies customizers one after another.
#[derive(Clone, Default)]
pub(super) struct CustomizerChain(Vec<Arc<dyn Customizer>>);

impl CustomizerChain {
    pub(super) fn push(&mut self, customizer: impl Customizer + 'static) {
        self.0.push(Arc::new(customizer));
    }
}

impl Customizer for CustomizerChain {
    fn customize<'a>(
        &self,
        context: RequestContextBuilder<'a>,
        request: &'a Parts,
    ) -> RequestContextBuilder<'a> {
        let customizers = self.0.iter();
        customizers.fold(context, |context, next| next.customize(context, request))
    }
}

impl fmt::Debug for CustomizerChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomizerChain({})", self.0.len())
    }
}
