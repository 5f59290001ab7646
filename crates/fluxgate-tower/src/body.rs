//! The body of a response that may be a refusal.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response: that of the inner service, or of a refusal.
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
        Refusal { text: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    fn inner(body: B) -> Self {
        Self {
            kind: Kind::Inner { body },
        }
    }

    fn refusal(text: Bytes) -> Self {
        let text = (!text.is_empty()).then_some(text);
        Self {
            kind: Kind::Refusal { text },
        }
    }
}

/// What the body of a response is, where the inner service's are of type `B`.
pub trait MakeBody<B> {
    /// A body that may be a refusal's.
    type Body;

    /// That of the inner service.
    fn of_service(body: B) -> Self::Body;

    /// That of a refusal.
    fn of_refusal(text: Bytes) -> Self::Body;
}

/// Bodies of any type stand beside refusals in a [`ResponseBody`].
#[derive(Clone, Copy, Debug)]
pub struct WrapBody;

impl<B> MakeBody<B> for WrapBody {
    type Body = ResponseBody<B>;

    fn of_service(body: B) -> ResponseBody<B> {
        ResponseBody::inner(body)
    }

    fn of_refusal(text: Bytes) -> ResponseBody<B> {
        ResponseBody::refusal(text)
    }
}

/// Bodies stay of the type that they are; refusals are made of it.
#[derive(Clone, Copy, Debug)]
pub struct SameBody;

impl<B: From<Bytes>> MakeBody<B> for SameBody {
    type Body = B;

    fn of_service(body: B) -> B {
        body
    }

    fn of_refusal(text: Bytes) -> B {
        text.into()
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
            KindProjected::Refusal { text } => {
                let frame = text.take().map(|text| Ok(Frame::data(text.into())));
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Refusal { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Refusal { text } => {
                let length = text.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
        }
    }
}
