//! The service that limits another.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

use fluxgate_core::{RequestPath, WaitPermit};
use http::{Request, Response};
use tokio::time::Instant;
use tower_service::Service;

use crate::bad_request::BadRequest;
use crate::body::{MakeBody, WrapBody};
use crate::filter::{Next, Undecided, Waiter, must_wait};
use crate::future::{Pending, ResponseFuture};
use crate::handler::{Handler, HeaderNames};
use crate::headers::Values;
use crate::layer::Settings;
use crate::refusal::Form;
use crate::ruling::Report;

/// Limits the requests to an inner service. Made by a
/// [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Debug)]
pub struct RateLimit<S, H, K = WrapBody> {
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
        let families = self.settings.filter.families();
        let (mut head, body) = request.into_parts();
        match judge(&self.settings, &head) {
            Judged::Passes(told) => {
                if told.is_some() {
                    clean(&self.settings, &mut head);
                }
                let response = self.inner.call(Request::from_parts(head, body));
                ResponseFuture::calling(families, response, told)
            }
            Judged::Refused(ruling) => {
                let form = Form::of(&head, self.settings.filter.failed_closed());
                ResponseFuture::refused(families, ruling, form)
            }
            Judged::Bad(bad) => {
                let form = Form::of(&head, self.settings.filter.failed_closed());
                ResponseFuture::bad(families, bad, form)
            }
            Judged::Later(judgement) => {
                let form = Form::of(&head, self.settings.filter.failed_closed());
                clean(&self.settings, &mut head);
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
    Bad(BadRequest),
    /// Somebody must be waited for.
    Later(Pending<R>),
}

/// How a request fares, at once if nobody must be waited for.
fn judge<H>(settings: &Arc<Settings<H>>, head: &http::request::Parts) -> Judged<H::Report>
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
    } = &**settings;
    let path = match RequestPath::read(head.uri.path()) {
        Ok(path) => path,
        // Then there is no limit to get around.
        Err(_) if filter.rule_set_name().is_none() => return Judged::Passes(None),
        Err(error) => return Judged::Bad(error.into()),
    };
    let Some(rule_set) = filter.rule_set_for(&path) else {
        return Judged::Passes(None);
    };
    let rules = handler.rules(rule_set);
    let peer = peer.peer_of(head);
    let context = match filter.context(handler, &rules, (head, &path), peer, customizers) {
        Ok(context) => context,
        Err(bad) => return Judged::Bad(bad),
    };
    // An answer is large: it stays where it is unless somebody needs it later.
    let (mode, here) = filter.place(handler, &rules);
    let decided = handler.try_decide(rule_set, &rules, &context, mode);
    if let Ok(ruling) = &decided
        && !must_wait(ruling)
    {
        handler.record(&context, ruling);
        if ruling.allowed() {
            return Judged::Passes(Some(filter.families().values(ruling)));
        }
    }
    let next = match decided {
        Ok(ruling) if !must_wait(&ruling) => return Judged::Refused(ruling),
        // Now, and not when the future is first polled: that may never be.
        Ok(ruling) => {
            let handler = HandlerOf(Arc::clone(settings));
            let places = (here, WaitPermit::unbounded());
            let now = Instant::now();
            Next::Wait(Waiter::new(
                handler, rule_set, &context, ruling, now, places,
            ))
        }
        Err(pending) => Next::Decide(Undecided {
            pending,
            mode,
            here,
        }),
    };
    let context = context.into_owned();
    let settings = Arc::clone(settings);
    Judged::Later(Box::pin(async move {
        let Settings {
            handler, filter, ..
        } = &*settings;
        filter.judge_later(handler, &rules, &context, next).await
    }))
}

/// Takes out what the inner service could take for something else than was counted.
fn clean<H: Handler>(settings: &Settings<H>, head: &mut http::request::Parts) {
    let Settings {
        handler, filter, ..
    } = settings;
    filter.keep_first_line(&mut head.headers);
    let mut names = head.headers.keys();
    if !names.any(|name| name.as_str().contains('_')) {
        return;
    }
    let rules = handler.rules(filter.rule_set_name().unwrap_or_default());
    let of_rules = match handler.header_names(&rules) {
        HeaderNames::Only(names) => names,
        // What the rules ask about is not known here.
        HeaderNames::All => handler.key_header_names(&rules),
    };
    filter.remove_lookalikes(&mut head.headers, of_rules);
}

/// The handler of these settings.
struct HandlerOf<H>(Arc<Settings<H>>);

impl<H> Deref for HandlerOf<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0.handler
    }
}
