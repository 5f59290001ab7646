//! The body of a request on its way to an upstream.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;

use crate::error::GatewayError;
use crate::timeouts::{ConnectionState, Deadline};
use crate::upstream::OpenBodyPermit;

/// A body that is forwarded as it arrives.
#[derive(Debug)]
pub(crate) struct RequestBody {
    source: BodySource,
    pub(crate) length: Option<u64>,
    /// The largest size, and how much of it is left.
    limit: Option<(u64, u64)>,
    /// The connection that the body arrives on.
    connection: Arc<ConnectionState>,
    /// The frame that was read to see whether the body is complete.
    first: Option<BodyFrame>,
    /// Whether the client sends the body only after `100 Continue`.
    awaits_continue: bool,
    /// Held until the body is complete.
    permit: Option<OpenBodyPermit>,
    /// Counts the bytes that arrive, if anyone wants to know.
    counted: Option<Arc<AtomicU64>>,
    has_ended: bool,
    /// What comes first, because it was returned before and put back.
    again: VecDeque<Bytes>,
    /// The trailers that may be forwarded.
    announced: Vec<HeaderName>,
    trailers: Option<HeaderMap>,
}

/// Where the parts of a body come from.
#[derive(Debug)]
enum BodySource {
    /// The client, which is still sending.
    Client(Incoming),
    /// A body that has been read.
    Whole(Bytes),
}

impl BodySource {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<BodyFrame> {
        match self {
            Self::Client(incoming) => Pin::new(incoming).poll_frame(cx),
            Self::Whole(content) if content.is_empty() => Poll::Ready(None),
            Self::Whole(content) => {
                let content = std::mem::take(content);
                Poll::Ready(Some(Ok(Frame::data(content))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Client(incoming) => incoming.is_end_stream(),
            Self::Whole(content) => content.is_empty(),
        }
    }
}

type BodyFrame = Option<Result<Frame<Bytes>, hyper::Error>>;

impl RequestBody {
    /// Forwards a body of at most `max` bytes; `None` if there is no body.
    pub(crate) fn new(
        incoming: Incoming,
        max: Option<u64>,
        awaits_continue: bool,
        connection: &Arc<ConnectionState>,
    ) -> Option<Box<Self>> {
        let body = (!incoming.is_end_stream()).then(|| Self {
            length: incoming.size_hint().exact(),
            source: BodySource::Client(incoming),
            limit: max.map(|max| (max, max)),
            connection: Arc::clone(connection),
            first: None,
            awaits_continue,
            permit: None,
            counted: None,
            has_ended: false,
            again: VecDeque::new(),
            announced: Vec::new(),
            trailers: None,
        });
        body.map(Box::new)
    }

    /// Forwards a body that has been read.
    pub(crate) fn whole(content: Bytes, connection: &Arc<ConnectionState>) -> Box<Self> {
        Box::new(Self {
            source: BodySource::Whole(content.clone()),
            length: u64::try_from(content.len()).ok(),
            limit: None,
            connection: Arc::clone(connection),
            first: None,
            awaits_continue: false,
            permit: None,
            counted: None,
            has_ended: false,
            again: VecDeque::new(),
            announced: Vec::new(),
            trailers: None,
        })
    }

    /// Keeps trailers with these names. Otherwise trailers are discarded: a server could take them
    /// for headers, which no rule has seen.
    pub(crate) fn keep_trailers(&mut self, names: Vec<HeaderName>) {
        self.announced = names;
    }

    /// Takes the trailers that were kept, once all of the body has been returned.
    pub(crate) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    /// Returns whether all of the body has been returned, and no trailers are kept.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended && self.again.is_empty() && self.trailers.is_none()
    }

    /// Puts back what was returned since the beginning, so that it is returned again.
    pub(crate) fn put_back(&mut self, parts: impl IntoIterator<Item = Bytes>) {
        self.again = parts.into_iter().chain(self.again.drain(..)).collect();
    }

    /// Returns whether some of the body is missing and no permit is held for that. Does not
    /// wait.
    ///
    /// # Errors
    /// If what has arrived is malformed: then not even the head is sent.
    pub(crate) async fn needs_permit(&mut self) -> Result<bool, GatewayError> {
        let is_incomplete = poll_fn(|cx| Poll::Ready(self.is_incomplete(cx))).await;
        match self.first {
            Some(Some(Err(_))) => Err(GatewayError::BodyAborted),
            _ => Ok(is_incomplete && self.permit.is_none()),
        }
    }

    /// Bounds the size. Nothing has been read yet.
    pub(crate) fn limit(&mut self, max: Option<u64>) {
        self.limit = max.map(|max| (max, max));
    }

    /// Adds the bytes that arrive to a counter.
    pub(crate) fn count_into(&mut self, counter: &Arc<AtomicU64>) {
        self.counted = Some(Arc::clone(counter));
    }

    /// Holds a permit until the body is complete.
    pub(crate) fn hold(&mut self, permit: OpenBodyPermit) {
        self.permit = Some(permit);
    }

    /// Reads and discards the body; returns its length.
    pub(crate) async fn discard(&mut self, idle: Duration) -> Result<u64, GatewayError> {
        let mut length = 0;
        let count = |data: Bytes| {
            length += u64::try_from(data.len()).unwrap_or(u64::MAX);
            Ok(())
        };
        self.for_each(idle, count).await?;
        Ok(length)
    }

    /// Returns whether all of the body has arrived. Does not wait.
    pub(crate) async fn has_arrived(&mut self) -> bool {
        poll_fn(|cx| Poll::Ready(!self.is_incomplete(cx))).await
    }

    /// Reads all parts of the body, each within `idle`.
    pub(crate) async fn for_each(
        &mut self,
        idle: Duration,
        mut take: impl FnMut(Bytes) -> Result<(), GatewayError>,
    ) -> Result<(), GatewayError> {
        let mut deadline = Deadline::default();
        loop {
            deadline.set_after(idle);
            let data = poll_fn(|cx| match self.poll_data(cx) {
                Poll::Pending => {
                    let elapsed = deadline.poll_elapsed(cx);
                    elapsed.map(|()| Err(GatewayError::BodyTimeout))
                }
                Poll::Ready(data) => Poll::Ready(data.transpose()),
            });
            match data.await? {
                Some(data) => take(data)?,
                None => return Ok(()),
            }
        }
    }

    /// Reads what has arrived; returns whether more is missing.
    fn is_incomplete(&mut self, cx: &mut Context<'_>) -> bool {
        // Polling makes hyper send `100 Continue`.
        if self.first.is_none()
            && !self.awaits_continue
            && let Poll::Ready(frame) = self.source.poll_frame(cx)
        {
            self.first = Some(frame);
        }
        match &self.first {
            None => true,
            Some(Some(Ok(frame))) => frame.is_data() && !self.source.is_end_stream(),
            Some(Some(Err(_)) | None) => false,
        }
    }

    /// Returns the next part of the body.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, GatewayError>>> {
        if let Some(again) = self.again.pop_front() {
            return Poll::Ready(Some(Ok(again)));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        let frame = match self.first.take() {
            Some(first) => first,
            None => ready!(self.source.poll_frame(cx)),
        };
        let data = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => Some(data),
                Err(frame) => {
                    self.trailers = announced(frame, &self.announced);
                    None
                }
            },
            Some(Err(_)) => return Poll::Ready(Some(Err(GatewayError::BodyAborted))),
            None => None,
        };
        if let (Some(data), Some(counted)) = (&data, &self.counted) {
            counted.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        if let (Some(data), Some((max, left))) = (&data, &mut self.limit) {
            let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
            match left.checked_sub(length) {
                Some(rest) => *left = rest,
                None => return Poll::Ready(Some(Err(GatewayError::BodyTooLarge(*max)))),
            }
        }
        if data.is_none() || self.source.is_end_stream() {
            self.has_ended = true;
            self.permit = None;
        }
        Poll::Ready(data.map(Ok))
    }
}

/// Returns the trailers that were announced, if there are any.
fn announced(frame: Frame<Bytes>, names: &[HeaderName]) -> Option<HeaderMap> {
    let trailers = frame.into_trailers().ok()?;
    let mut kept = HeaderMap::new();
    for (name, value) in &trailers {
        if names.contains(name) {
            kept.append(name, value.clone());
        }
    }
    (!kept.is_empty()).then_some(kept)
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.has_ended && matches!(self.source, BodySource::Client(_)) {
            self.connection.leave_unread();
        }
    }
}
