//! The body of a response: that of the inner service, or that of a rejection.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// Makes the bodies of responses, where those of the inner service are of type `B`.
pub trait MakeBody<B> {
    /// The body of a response.
    type Body;

    /// Makes a body from that of the inner service.
    fn from_inner(body: B) -> Self::Body;

    /// Makes the body of a rejection.
    fn from_bytes(bytes: Bytes) -> Self::Body;
}

/// Wraps bodies of any type in a [`ResponseBody`].
#[derive(Clone, Copy, Debug)]
pub struct WrapBody;

impl<B> MakeBody<B> for WrapBody {
    type Body = ResponseBody<B>;

    fn from_inner(body: B) -> ResponseBody<B> {
        ResponseBody {
            kind: Kind::Inner { body },
        }
    }

    fn from_bytes(bytes: Bytes) -> ResponseBody<B> {
        let bytes = (!bytes.is_empty()).then_some(bytes);
        ResponseBody {
            kind: Kind::Rejection { bytes },
        }
    }
}

/// Keeps the type of the inner service's bodies.
#[derive(Clone, Copy, Debug)]
pub struct SameBody;

impl<B: From<Bytes>> MakeBody<B> for SameBody {
    type Body = B;

    fn from_inner(body: B) -> B {
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
        match self.project().kind.project() {
            KindProjected::Inner { body } => body.poll_frame(cx),
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
