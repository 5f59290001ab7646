//! The future of a response.

use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fluxgate_http::{FilterOutcome, HeaderValues, HeldUntilDropped, Report, RequestHold};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::rejection::{Rejection, RejectionFormat};

/// The outcome of an evaluation that must be awaited, and the hold of an allowed request.
pub(super) type PendingOutcome<R> =
    Pin<Box<dyn Future<Output = (FilterOutcome<R>, Option<RequestHold>)> + Send>>;

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit).
    pub struct ResponseFuture<S, R, B, K = WrapBody>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, R, B, S::Future>,
        make_body: PhantomData<fn() -> K>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<S, R, B, F> {
        Evaluating {
            evaluation: PendingOutcome<R>,
            // Boxed, so that futures of requests that need not wait stay small.
            call: Option<Box<Call<S, B>>>,
        },
        // The inner service must be ready before it is called.
        Allowed {
            call: Option<Box<Call<S, B>>>,
            headers: Option<HeaderValues>,
            held: HeldUntilDropped,
        },
        Calling {
            #[pin]
            response: F,
            headers: Option<HeaderValues>,
            held: HeldUntilDropped,
        },
        Rejected { response: Option<Box<Response<Bytes>>> },
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
    fn new(state: State<S, R, B, S::Future>) -> Self {
        Self {
            state,
            make_body: PhantomData,
        }
    }

    /// Awaits the evaluation, then calls `inner` or rejects the request.
    pub(super) fn evaluating(
        evaluation: PendingOutcome<R>,
        inner: S,
        request: Request<B>,
        format: RejectionFormat,
    ) -> Self {
        let call = Some(Box::new(Call {
            inner,
            request,
            format,
        }));
        Self::new(State::Evaluating { evaluation, call })
    }

    /// Awaits the response of the inner service and adds these headers. The holds end with
    /// the response.
    pub(super) fn calling(
        response: S::Future,
        headers: Option<HeaderValues>,
        held: HeldUntilDropped,
    ) -> Self {
        Self::new(State::Calling {
            response,
            headers,
            held,
        })
    }

    /// Returns this response.
    pub(super) fn rejected(response: Response<Bytes>) -> Self {
        Self::new(State::Rejected {
            response: Some(Box::new(response)),
        })
    }
}

impl<S, B> Call<S, B> {
    /// Rejects the request instead of calling the inner service.
    fn reject<R: Report, F>(self, rejection: &Rejection<R>) -> State<S, R, B, F> {
        let (head, _) = self.request.into_parts();
        let response = Some(Box::new(self.format.response(&head, rejection)));
        State::Rejected { response }
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
                    let (outcome, hold) = ready!(evaluation.as_mut().poll(cx));
                    let Some(mut call) = call.take() else {
                        return Poll::Pending;
                    };
                    if let Some(hold) = &hold {
                        call.request.extensions_mut().insert(hold.clone());
                    }
                    let held = HeldUntilDropped::from(hold);
                    match outcome {
                        FilterOutcome::Skipped => State::Allowed {
                            call: Some(call),
                            headers: None,
                            held,
                        },
                        FilterOutcome::Allowed(report) => State::Allowed {
                            headers: Some(call.format.families.values(&report)),
                            call: Some(call),
                            held,
                        },
                        FilterOutcome::Denied(report) => call.reject(&Rejection::Denied(report)),
                        FilterOutcome::BadRequest(bad) => {
                            call.reject(&Rejection::<R>::BadRequest(bad))
                        }
                        FilterOutcome::InvalidToken => call.reject(&Rejection::<R>::InvalidToken),
                    }
                }
                StateProjected::Allowed {
                    call,
                    headers,
                    held,
                } => {
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
                        held: mem::take(held),
                    }
                }
                StateProjected::Calling {
                    response,
                    headers,
                    held,
                } => {
                    let response = ready!(response.poll(cx))?;
                    let mut held = mem::take(held);
                    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                        // The connection goes on, and the inner service knows until when.
                        held.leave();
                    }
                    let mut response = response.map(|body| K::from_inner(body, held));
                    if let Some(headers) = headers.take() {
                        headers.merge_into(&mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProjected::Rejected { response } => {
                    let Some(response) = response.take() else {
                        return Poll::Pending;
                    };
                    return Poll::Ready(Ok(response.map(K::from_bytes)));
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

/// Makes the bodies of responses, where those of the inner service are of type `B`.
pub trait MakeBody<B> {
    /// The body of a response.
    type Body;

    /// Makes a body from that of the inner service. The holds end with it, if it can keep
    /// them.
    fn from_inner(body: B, held: HeldUntilDropped) -> Self::Body;

    /// Makes the body of a rejection.
    fn from_bytes(bytes: Bytes) -> Self::Body;
}

/// Wraps bodies of any type in a [`ResponseBody`].
#[derive(Clone, Copy, Debug)]
pub struct WrapBody;

impl<B> MakeBody<B> for WrapBody {
    type Body = ResponseBody<B>;

    fn from_inner(body: B, held: HeldUntilDropped) -> ResponseBody<B> {
        ResponseBody {
            kind: Kind::Inner { body },
            held,
        }
    }

    fn from_bytes(bytes: Bytes) -> ResponseBody<B> {
        let bytes = (!bytes.is_empty()).then_some(bytes);
        ResponseBody {
            kind: Kind::Rejection { bytes },
            held: HeldUntilDropped::default(),
        }
    }
}

/// Keeps the type of the inner service's bodies. They cannot keep a hold, so slots are given
/// back when the inner service has responded, and not when the body has ended.
#[derive(Clone, Copy, Debug)]
pub struct SameBody;

impl<B: From<Bytes>> MakeBody<B> for SameBody {
    type Body = B;

    fn from_inner(body: B, _: HeldUntilDropped) -> B {
        body
    }

    fn from_bytes(bytes: Bytes) -> B {
        bytes.into()
    }
}

pin_project! {
    /// The body of a response: that of the inner service, or that of a rejection.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
        // The holds of the request, which end with the body.
        held: HeldUntilDropped,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindProjected]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Rejection { bytes: Option<Bytes> },
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        match this.kind.project() {
            KindProjected::Inner { body } => {
                let frame = body.poll_frame(cx);
                if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
                    this.held.end();
                }
                frame
            }
            KindProjected::Rejection { bytes } => {
                let frame = bytes.take().map(|bytes| Ok(Frame::data(bytes.into())));
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Rejection { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Rejection { bytes } => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
        }
    }
}
