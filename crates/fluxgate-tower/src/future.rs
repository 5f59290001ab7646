//! The response that is on its way.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::bad_request::BadRequest;
use crate::body::{MakeBody, WrapBody};
use crate::filter::FilterOutcome;
use crate::headers::{HeaderFamilies, Values};
use crate::refusal::Form;
use crate::ruling::Report;

/// A judgement that somebody has to be waited for.
pub(crate) type Pending<R> = Pin<Box<dyn Future<Output = FilterOutcome<R>> + Send>>;

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit).
    pub struct ResponseFuture<S, R, B, K = WrapBody>
    where
        S: Service<Request<B>>,
    {
        families: HeaderFamilies,
        #[pin]
        state: State<S, R, B, S::Future>,
        bodies: PhantomData<fn() -> K>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<S, R, B, F> {
        // It is not known yet how the request fares.
        Judging {
            judgement: Pending<R>,
            // Called once. Boxed, so that those who need not wait are not as large.
            inner: Option<Box<(S, Request<B>, Form)>>,
        },
        // It goes on as soon as the inner service is ready.
        Readying { inner: Option<Box<(S, Request<B>, Form)>>, told: Option<Values> },
        // The inner service has been called.
        Calling { #[pin] response: F, told: Option<Values> },
        Refused { refusal: Option<Box<(R, Form)>> },
        Bad { bad: Option<Box<(BadRequest, Form)>> },
    }
}

impl<S, R, B, K> ResponseFuture<S, R, B, K>
where
    S: Service<Request<B>>,
{
    fn new(families: HeaderFamilies, state: State<S, R, B, S::Future>) -> Self {
        Self {
            families,
            state,
            bodies: PhantomData,
        }
    }

    pub(crate) fn judging(
        families: HeaderFamilies,
        judgement: Pending<R>,
        inner: S,
        request: Request<B>,
        form: Form,
    ) -> Self {
        let inner = Some(Box::new((inner, request, form)));
        Self::new(families, State::Judging { judgement, inner })
    }

    pub(crate) fn calling(
        families: HeaderFamilies,
        response: S::Future,
        told: Option<Values>,
    ) -> Self {
        Self::new(families, State::Calling { response, told })
    }

    pub(crate) fn bad(families: HeaderFamilies, bad: BadRequest, form: Form) -> Self {
        let bad = Some(Box::new((bad, form)));
        Self::new(families, State::Bad { bad })
    }

    pub(crate) fn refused(families: HeaderFamilies, ruling: R, form: Form) -> Self {
        let refusal = Some(Box::new((ruling, form)));
        Self::new(families, State::Refused { refusal })
    }
}

impl<S, R, B, K, ResBody> Future for ResponseFuture<S, R, B, K>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: Report,
    K: MakeBody<ResBody>,
{
    type Output = Result<Response<K::Body>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjected::Judging { judgement, inner } => {
                    let judgement = ready!(judgement.as_mut().poll(cx));
                    // Taken once: what follows is another state.
                    let Some(inner) = inner.take() else {
                        return Poll::Pending;
                    };
                    match judgement {
                        FilterOutcome::Skipped => State::Readying {
                            inner: Some(inner),
                            told: None,
                        },
                        FilterOutcome::Allowed(ruling) => State::Readying {
                            inner: Some(inner),
                            told: Some(this.families.values(&ruling)),
                        },
                        FilterOutcome::Denied(ruling) => State::Refused {
                            refusal: Some(Box::new((ruling, inner.2))),
                        },
                        FilterOutcome::BadRequest(bad) => State::Bad {
                            bad: Some(Box::new((bad, inner.2))),
                        },
                    }
                }
                StateProjected::Readying { inner, told } => {
                    if let Some(inner) = inner {
                        ready!(inner.0.poll_ready(cx))?;
                    }
                    // Taken once: what follows is another state.
                    let Some(inner) = inner.take() else {
                        return Poll::Pending;
                    };
                    let (mut inner, request, _) = *inner;
                    State::Calling {
                        response: inner.call(request),
                        told: told.take(),
                    }
                }
                StateProjected::Calling { response, told } => {
                    let mut response = ready!(response.poll(cx))?.map(K::of_service);
                    if let Some(told) = told.take() {
                        told.merge_into(&mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProjected::Refused { refusal } => {
                    // Taken once: a future that is ready is not asked again.
                    let Some(refusal) = refusal.take() else {
                        return Poll::Pending;
                    };
                    let (ruling, form) = *refusal;
                    return Poll::Ready(Ok(form.response::<_, K>(*this.families, &ruling)));
                }
                StateProjected::Bad { bad } => {
                    // Taken once: a future that is ready is not asked again.
                    let Some(bad) = bad.take() else {
                        return Poll::Pending;
                    };
                    let (bad, form) = *bad;
                    return Poll::Ready(Ok(form.bad_request::<_, K>(bad)));
                }
            };
            this.state.set(next);
        }
    }
}

impl<S, R, B, K> std::fmt::Debug for ResponseFuture<S, R, B, K>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
