//! Sends the body of a request over HTTP/2 as it arrives from the client.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::SendStream;
use tokio::time::Instant;

use crate::error::GatewayError;
use crate::request_body::RequestBody;

/// How much of a body is kept until the response begins, so that it can be sent again if the
/// server refuses the request.
const MAX_KEPT: usize = 64 * 1024;

/// A body that is being sent. No more of it is taken from the client than the server accepts.
#[derive(Debug)]
pub(super) struct Http2Sender {
    stream: SendStream<Bytes>,
    /// `None` if all of the body is in `pending`.
    body: Option<Box<RequestBody>>,
    /// What has arrived and has not been sent.
    pending: Bytes,
    /// What was taken of the body, unless it was too much.
    kept: Option<Vec<Bytes>>,
    pub(super) has_ended: bool,
    /// Whether the upstream accepts no more. It may still respond.
    is_refused: bool,
    pub(super) awaits_client: bool,
    /// When something was last sent.
    pub(super) last_progress: Instant,
}

impl Http2Sender {
    /// Sends `content`, and then `body`.
    pub(super) fn new(
        stream: SendStream<Bytes>,
        content: &[u8],
        body: Option<Box<RequestBody>>,
    ) -> Self {
        Self {
            stream,
            body,
            pending: Bytes::copy_from_slice(content),
            kept: Some(Vec::new()),
            has_ended: false,
            is_refused: false,
            awaits_client: false,
            last_progress: Instant::now(),
        }
    }

    /// Sends what has arrived; returns whether the whole body has been sent.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<bool, GatewayError> {
        self.awaits_client = false;
        while !self.has_ended && !self.is_refused {
            if !self.pending.is_empty() {
                if self.poll_send_pending(cx).is_pending() {
                    return Ok(false);
                }
                continue;
            }
            // A failure shows when the response is read.
            self.is_refused = match &mut self.body {
                None => self.end(),
                Some(body) => match body.poll_data(cx) {
                    Poll::Ready(Some(data)) => {
                        let data = data?;
                        self.keep(&data);
                        self.pending = data;
                        false
                    }
                    Poll::Ready(None) => match body.take_trailers() {
                        Some(trailers) => {
                            self.kept = None;
                            self.has_ended = true;
                            self.stream.send_trailers(trailers).is_err()
                        }
                        None => self.end(),
                    },
                    Poll::Pending => {
                        self.awaits_client = true;
                        return Ok(false);
                    }
                },
            };
        }
        Ok(self.has_ended)
    }

    /// Returns the body as it was before any of it was sent, for another upstream or connection.
    /// `None` if too much of it is gone.
    pub(super) fn into_body(self) -> Option<Option<Box<RequestBody>>> {
        let kept = self.kept?;
        Some(self.body.map(|mut body| {
            body.put_back(kept);
            body
        }))
    }

    /// Keeps nothing any more.
    pub(super) fn forget(&mut self) {
        self.kept = None;
    }

    /// Ready when a part of what is pending has been sent, or nothing more can be.
    fn poll_send_pending(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.reserve_capacity(self.pending.len());
        let mut capacity = self.stream.capacity();
        while capacity == 0 {
            match std::task::ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(more)) => capacity = more,
                Some(Err(_)) | None => {
                    self.is_refused = true;
                    return Poll::Ready(());
                }
            }
        }
        let part = self.pending.split_to(capacity.min(self.pending.len()));
        let is_last =
            self.pending.is_empty() && self.body.as_ref().is_none_or(|body| body.is_over());
        self.has_ended = is_last;
        self.is_refused = self.stream.send_data(part, is_last).is_err();
        self.last_progress = Instant::now();
        Poll::Ready(())
    }

    /// Ends the body; returns whether that failed.
    fn end(&mut self) -> bool {
        self.has_ended = true;
        self.stream.send_data(Bytes::new(), true).is_err()
    }

    fn keep(&mut self, data: &Bytes) {
        if let Some(kept) = &mut self.kept {
            let length: usize = kept.iter().map(Bytes::len).sum();
            // Many small parts take more memory than they hold.
            if length + data.len() > MAX_KEPT || kept.len() == MAX_KEPT / 1024 {
                self.kept = None;
            } else {
                kept.push(data.clone());
            }
        }
    }
}
