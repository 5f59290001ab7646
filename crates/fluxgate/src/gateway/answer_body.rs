//! The body of an answer, on its way to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::activity::{Activity, Stillness};
use super::hop_by_hop;
use super::pieces::Pieces;
use super::pool::Connection;
use super::pulse::InFlight;
use super::upstreams::Lease;

/// A body that is there as a whole, or that an upstream sends.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    kind: Kind,
    /// What is cut into pieces, where it is.
    pieces: Option<Pieces>,
    /// Until the body has ended, the connection has something to do.
    _in_flight: Option<InFlight>,
}

#[derive(Debug)]
enum Kind {
    Whole(Option<Bytes>),
    Streamed(Box<Streamed>),
}

/// What an upstream sends.
#[derive(Debug)]
pub(super) struct Streamed {
    pub(super) incoming: Incoming,
    /// Is left to the next request once the body has ended.
    pub(super) connection: Option<Connection>,
    pub(super) activity: Arc<Activity>,
    pub(super) stillness: Stillness,
    pub(super) ended: bool,
    /// Why it ends before its end, to be told at the next poll: until then, what
    /// has come is sent.
    pub(super) broken: Option<AnswerError>,
    /// The upstream has a request less when this goes.
    pub(super) lease: Lease,
    /// Whether the client takes trailers.
    pub(super) wants_trailers: bool,
}

/// Why a body ended before its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    /// The upstream broke off.
    #[error(transparent)]
    Upstream(#[from] hyper::Error),
    /// Nothing moved any more.
    #[error("nothing moves any more")]
    Still,
}

impl AnswerBody {
    /// One that is there as a whole.
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self {
            kind: Kind::Whole(Some(bytes.into())),
            pieces: None,
            _in_flight: None,
        }
    }

    pub(super) fn streamed(streamed: Streamed) -> Self {
        Self {
            kind: Kind::Streamed(Box::new(streamed)),
            pieces: None,
            _in_flight: None,
        }
    }

    /// The same in pieces, and what tells whether any are taken.
    pub(super) fn in_pieces(mut self) -> (Self, Arc<Activity>) {
        let activity = match &self.kind {
            Kind::Whole(_) => Arc::new(Activity::new()),
            Kind::Streamed(streamed) => Arc::clone(&streamed.activity),
        };
        self.pieces = Some(Pieces::new(Arc::clone(&activity)));
        (self, activity)
    }

    /// How much has come and has not been asked for.
    fn left(&self) -> u64 {
        let left = self.pieces.as_ref().map_or(0, Pieces::left);
        u64::try_from(left).unwrap_or(u64::MAX)
    }

    /// The same, held until it has ended.
    pub(super) fn holding(mut self, in_flight: InFlight) -> Self {
        self._in_flight = Some(in_flight);
        self
    }
}

impl Streamed {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let error = match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(Some(Err(error))) => AnswerError::Upstream(error),
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => {
                self.activity.moves();
                self.ended = true;
                return Poll::Ready(self.trailers(frame).map(Ok));
            }
            Poll::Ready(frame) => {
                self.activity.moves();
                self.ended |= frame.is_none();
                return Poll::Ready(frame.map(|frame| Ok(frame?)));
            }
            Poll::Pending => match self.stillness.poll(context, &self.activity) {
                Poll::Ready(()) => AnswerError::Still,
                Poll::Pending => return Poll::Pending,
            },
        };
        let upstream = &self.lease.upstream().target;
        tracing::debug!(%upstream, %error, "an answer broke off");
        self.broken = Some(error);
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Streamed {
    /// The trailers that are passed on.
    fn trailers(&self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let mut trailers = frame.into_trailers().ok().filter(|_| self.wants_trailers)?;
        hop_by_hop::strip_trailers(&mut trailers);
        (!trailers.is_empty()).then(|| Frame::trailers(trailers))
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        // An upstream that answers before it has read the request may not be
        // asked anything else on the same connection.
        let is_whole = self.ended || self.incoming.is_end_stream();
        if is_whole
            && self.activity.request_ended()
            && let Some(connection) = self.connection.take()
        {
            connection.leave();
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        let this = self.get_mut();
        if let Some(piece) = this.pieces.as_mut().and_then(Pieces::next) {
            return Poll::Ready(Some(Ok(piece)));
        }
        let polled = match &mut this.kind {
            Kind::Whole(bytes) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Kind::Streamed(streamed) => streamed.poll(context),
        };
        match (polled, &mut this.pieces) {
            (Poll::Ready(Some(Ok(frame))), Some(pieces)) => {
                Poll::Ready(Some(Ok(pieces.first(frame))))
            }
            (polled, _) => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        if self.left() > 0 {
            return false;
        }
        match &self.kind {
            Kind::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Streamed(streamed) => streamed.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let hint = match &self.kind {
            Kind::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                let length = u64::try_from(length).unwrap_or(u64::MAX);
                SizeHint::with_exact(length)
            }
            Kind::Streamed(streamed) => streamed.incoming.size_hint(),
        };
        let left = self.left();
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower().saturating_add(left));
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper.saturating_add(left));
        }
        whole
    }
}
