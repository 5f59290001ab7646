//! The body of a response: that of the inner service, or that of a rejection.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use fluxgate_http::HeldUntilDropped;

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
