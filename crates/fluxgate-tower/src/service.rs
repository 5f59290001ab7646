//! The service that limits another.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::time::Instant;
use tower_service::Service;

use crate::body::{AnyBody, Bodies};
use crate::filter::{Waiter, must_wait};
use crate::future::{Pending, ResponseFuture};
use crate::handler::Handler;
use crate::headers::Values;
use crate::layer::Settings;
use crate::refusal::Form;
use crate::ruling::Ruling;

/// Limits the requests to an inner service. Made by a
/// [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Debug)]
pub struct RateLimit<S, H, K = AnyBody> {
    inner: S,
    settings: Arc<Settings<H>>,
    bodies: PhantomData<fn() -> K>,
}

impl<S: Clone, H, K> Clone for RateLimit<S, H, K> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.settings))
    }
}

impl<S, H, K> RateLimit<S, H, K> {
    pub(crate) fn new(inner: S, settings: Arc<Settings<H>>) -> Self {
        Self {
            inner,
            settings,
            bodies: PhantomData,
        }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, H, K, B, ResBody> Service<Request<B>> for RateLimit<S, H, K>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    H: Handler + 'static,
    H::Rules: 'static,
    H::Ruling: 'static,
    K: Bodies<ResBody>,
{
    type Response = Response<K::Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S, H::Ruling, B, K>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let families = self.settings.filter.families();
        let (head, body) = request.into_parts();
        match judge(&self.settings, &head) {
            Judged::Passes(told) => {
                let response = self.inner.call(Request::from_parts(head, body));
                ResponseFuture::calling(families, response, told)
            }
            Judged::Refused(ruling) => ResponseFuture::refused(families, ruling, Form::of(&head)),
            Judged::Later(judgement) => {
                let form = Form::of(&head);
                let request = Request::from_parts(head, body);
                // Whoever waits does not keep the inner service ready meanwhile,
                // which may be what others need: both go on with clones.
                let inner = self.inner.clone();
                self.inner = inner.clone();
                ResponseFuture::judging(families, judgement, inner, request, form)
            }
        }
    }
}

/// How a request fares, so far as that is known at once.
enum Judged<R> {
    /// It goes on, and this is told.
    Passes(Option<Values>),
    Refused(R),
    /// Somebody must be waited for.
    Later(Pending<R>),
}

/// How a request fares, at once if nobody must be waited for.
fn judge<H>(settings: &Arc<Settings<H>>, head: &http::request::Parts) -> Judged<H::Ruling>
where
    H: Handler + 'static,
    H::Rules: 'static,
    H::Ruling: 'static,
{
    let Settings {
        handler,
        filter,
        customizers,
        peer,
    } = &**settings;
    let Some(rule_set) = filter.rule_set_for(head.uri.path()) else {
        return Judged::Passes(None);
    };
    let rules = handler.rules(rule_set);
    let peer = peer.peer_of(head);
    let context = filter.context(handler, &rules, head, peer, customizers);
    // An answer is large: it stays where it is unless somebody needs it later.
    let ruling = handler.decide_at_once(rule_set, &rules, &context);
    if let Some(ruling) = &ruling
        && !must_wait(ruling)
    {
        handler.settled(&context, ruling);
        if ruling.allowed() {
            return Judged::Passes(Some(filter.families().values(ruling)));
        }
    }
    let ruling = match ruling {
        Some(ruling) if !must_wait(&ruling) => return Judged::Refused(ruling),
        ruling => ruling,
    };
    // Now, and not when the future is first asked: that may never be.
    let waiter = ruling.map(|ruling| {
        let handler = HandlerOf(Arc::clone(settings));
        Waiter::new(handler, rule_set, &context, ruling, Instant::now())
    });
    let context = context.into_owned();
    let settings = Arc::clone(settings);
    Judged::Later(Box::pin(async move {
        let Settings {
            handler, filter, ..
        } = &*settings;
        filter.judge_later(handler, &rules, &context, waiter).await
    }))
}

/// The handler of these settings.
struct HandlerOf<H>(Arc<Settings<H>>);

impl<H> Deref for HandlerOf<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0.handler
    }
}
