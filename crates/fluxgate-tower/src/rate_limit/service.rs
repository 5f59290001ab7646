//! The service that limits the requests to another.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

use fluxgate_core::path::RequestPath;
use fluxgate_core::store::WaitPermit;
use http::request::Parts;
use http::{Request, Response};
use tokio::time::Instant;
use tower_service::Service;

use super::body::{MakeBody, WrapBody};
use super::customizer::{Customizer as _, CustomizerChain};
use super::denial::DenialHandler;
use super::future::{Evaluation, ResponseFuture};
use super::rejection::{Rejection, RejectionFormat};
use crate::alike_names::is_plain_name;
use crate::client_ip::PeerSource;
use crate::context::ContextError;
use crate::filter::Filter;
use crate::filter::evaluate::FilterOutcome;
use crate::filter::waiting::{NextStep, Undecided, Waiter, must_wait};
use crate::handler::{Handler, HeaderNames};
use crate::headers::HeaderValues;
use crate::report::Report;
use crate::request_hold::RequestHold;

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
    /// Responds to denied requests in place of the layer.
    pub(super) on_denied: Option<DenialHandler>,
}

impl<H> Settings<H> {
    fn rejection_format(&self) -> RejectionFormat {
        RejectionFormat {
            families: self.filter.families(),
            failed_closed: self.filter.failed_closed(),
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
            Evaluated::Allowed(headers, hold) => {
                if headers.is_some() {
                    sanitize(settings, &mut head, reads_odd_headers);
                }
                if let Some(hold) = &hold {
                    head.extensions.insert(hold.clone());
                }
                let response = self.inner.call(Request::from_parts(head, body));
                ResponseFuture::calling(response, headers, hold.into())
            }
            Evaluated::Rejected(rejection) => {
                if settings.on_denied.is_some() {
                    sanitize(settings, &mut head, reads_odd_headers);
                }
                let response = settings.rejection_format().response(&head, &rejection);
                self.release_inner();
                ResponseFuture::rejected(response)
            }
            Evaluated::Pending(evaluation) => {
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
enum Evaluated<R> {
    /// The request is forwarded. A filter that applies adds these headers to its response.
    Allowed(Option<HeaderValues>, Option<RequestHold>),
    Rejected(Rejection<R>),
    Pending(Evaluation<R>),
}

/// Evaluates a request at once, if nothing must be awaited. Sets whether a header is read whose
/// name is not plain.
fn evaluate<H>(
    settings: &Arc<Settings<H>>,
    head: &Parts,
    reads_odd_headers: &mut bool,
) -> Evaluated<H::Report>
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
        Err(_) if filter.rule_set_name().is_none() => return Evaluated::Allowed(None, None),
        Err(error) => return Evaluated::Rejected(Rejection::BadRequest(error.into())),
    };
    let Some(rule_set) = filter.rule_set_for(&path) else {
        return Evaluated::Allowed(None, None);
    };
    let rules = handler.rules(rule_set);
    *reads_odd_headers = filter.reads_odd_headers(known_headers(handler, &rules));
    let peer = peer.peer_ip(head);
    let customize = |context, head| customizers.customize(context, head);
    let context = match filter.context(handler, &rules, (head, &path), peer, customize) {
        Ok(context) => context,
        Err(ContextError::BadRequest(bad)) => {
            return Evaluated::Rejected(Rejection::BadRequest(bad));
        }
        Err(ContextError::InvalidToken) => return Evaluated::Rejected(Rejection::InvalidToken),
    };
    let (mode, local) = filter.mode_and_permit(handler, &rules);
    // A report is large, so it is moved only if it is needed later.
    let decided = handler.try_decide(rule_set, &rules, &context, mode);
    if let Ok(report) = &decided
        && !must_wait(report)
    {
        handler.record(&context, report);
        if report.allowed() {
            let headers = filter.families().values(report);
            return Evaluated::Allowed(Some(headers), handler.hold(report));
        }
    }
    let next = match decided {
        Ok(report) if !must_wait(&report) => {
            return Evaluated::Rejected(Rejection::Denied(report));
        }
        Ok(report) => {
            // The waiter must exist now: the future may be dropped before it is polled.
            let handler = SharedHandler(Arc::clone(settings));
            let permits = (local, WaitPermit::unbounded());
            let now = Instant::now();
            let waiter = Waiter::new(handler, rule_set, &context, report, now, permits);
            NextStep::Wait(waiter)
        }
        Err(pending) => NextStep::Decide(Undecided {
            pending,
            mode,
            local,
        }),
    };
    let context = context.into_owned();
    let settings = Arc::clone(settings);
    Evaluated::Pending(Box::pin(async move {
        let Settings {
            handler, filter, ..
        } = &*settings;
        let outcome = filter.finish(handler, &rules, &context, next).await;
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
