//! The future of a response.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::{MakeBody, WrapBody};
use super::rejection::{Rejection, RejectionFormat};
use crate::filter::evaluate::FilterOutcome;
use crate::headers::{HeaderFamilies, HeaderValues};
use crate::report::Report;

/// An evaluation that must be awaited.
pub(super) type Evaluation<R> = Pin<Box<dyn Future<Output = FilterOutcome<R>> + Send>>;

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit).
    pub struct ResponseFuture<S, R, B, K = WrapBody>
    where
        S: Service<Request<B>>,
    {
        families: HeaderFamilies,
        #[pin]
        state: State<S, R, B, S::Future>,
        make_body: PhantomData<fn() -> K>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<S, R, B, F> {
        Evaluating {
            evaluation: Evaluation<R>,
            // Boxed, so that futures of requests that need not wait stay small.
            call: Option<Box<Call<S, B>>>,
        },
        // The inner service must be ready before it is called.
        Allowed { call: Option<Box<Call<S, B>>>, headers: Option<HeaderValues> },
        Calling { #[pin] response: F, headers: Option<HeaderValues> },
        Rejected { rejection: Option<Box<(Rejection<R>, RejectionFormat)>> },
    }
}

/// The call to the inner service, and the format of a rejection instead.
struct Call<S, B> {
    inner: S,
    request: Request<B>,
    format: RejectionFormat,
}

impl<S, R, B, K> ResponseFuture<S, R, B, K>
where
    S: Service<Request<B>>,
{
    fn new(families: HeaderFamilies, state: State<S, R, B, S::Future>) -> Self {
        Self {
            families,
            state,
            make_body: PhantomData,
        }
    }

    /// Awaits the evaluation, then calls `inner` or rejects the request.
    pub(super) fn evaluating(
        families: HeaderFamilies,
        evaluation: Evaluation<R>,
        inner: S,
        request: Request<B>,
        format: RejectionFormat,
    ) -> Self {
        let call = Some(Box::new(Call {
            inner,
            request,
            format,
        }));
        Self::new(families, State::Evaluating { evaluation, call })
    }

    /// Awaits the response of the inner service and adds these headers.
    pub(super) fn calling(
        families: HeaderFamilies,
        response: S::Future,
        headers: Option<HeaderValues>,
    ) -> Self {
        Self::new(families, State::Calling { response, headers })
    }

    pub(super) fn rejected(
        families: HeaderFamilies,
        rejection: Rejection<R>,
        format: RejectionFormat,
    ) -> Self {
        Self::new(families, State::rejected(rejection, format))
    }
}

impl<S, R, B, F> State<S, R, B, F> {
    fn rejected(rejection: Rejection<R>, format: RejectionFormat) -> Self {
        let rejection = Some(Box::new((rejection, format)));
        Self::Rejected { rejection }
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
        // Each `take` below succeeds: the state changes afterwards, or the future has ended.
        loop {
            let next = match this.state.as_mut().project() {
                StateProjected::Evaluating { evaluation, call } => {
                    let outcome = ready!(evaluation.as_mut().poll(cx));
                    let Some(call) = call.take() else {
                        return Poll::Pending;
                    };
                    match outcome {
                        FilterOutcome::Skipped => State::Allowed {
                            call: Some(call),
                            headers: None,
                        },
                        FilterOutcome::Allowed(report) => State::Allowed {
                            call: Some(call),
                            headers: Some(this.families.values(&report)),
                        },
                        FilterOutcome::Denied(report) => {
                            State::rejected(Rejection::Denied(report), call.format)
                        }
                        FilterOutcome::BadRequest(bad) => {
                            State::rejected(Rejection::BadRequest(bad), call.format)
                        }
                    }
                }
                StateProjected::Allowed { call, headers } => {
                    if let Some(call) = call {
                        ready!(call.inner.poll_ready(cx))?;
                    }
                    let Some(call) = call.take() else {
                        return Poll::Pending;
                    };
                    let Call {
                        mut inner, request, ..
                    } = *call;
                    State::Calling {
                        response: inner.call(request),
                        headers: headers.take(),
                    }
                }
                StateProjected::Calling { response, headers } => {
                    let mut response = ready!(response.poll(cx))?.map(K::from_inner);
                    if let Some(headers) = headers.take() {
                        headers.merge_into(&mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProjected::Rejected { rejection } => {
                    let Some(rejection) = rejection.take() else {
                        return Poll::Pending;
                    };
                    let (rejection, format) = *rejection;
                    return Poll::Ready(Ok(format.response::<_, K>(*this.families, &rejection)));
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
