//! Sends the body of a request as it arrives from the client.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::AsyncWrite as _;
use tokio::time::Instant;

use crate::error::GatewayError;
use crate::request_body::RequestBody;
use crate::upstream::UpstreamStream;

/// A body that is being sent.
#[derive(Debug)]
pub(super) struct BodySender {
    body: Box<RequestBody>,
    /// Whether the length is unknown, so that the body is sent in chunks.
    is_chunked: bool,
    /// What has arrived and has not been sent.
    pending: Bytes,
    has_ended: bool,
    /// Whether the upstream accepts no more. It may still respond.
    is_refused: bool,
    pub(super) awaits_client: bool,
    /// When something was last sent.
    pub(super) last_progress: Instant,
}

impl BodySender {
    pub(super) fn new(body: Box<RequestBody>) -> Self {
        Self {
            is_chunked: body.length.is_none(),
            body,
            pending: Bytes::new(),
            has_ended: false,
            is_refused: false,
            awaits_client: false,
            last_progress: Instant::now(),
        }
    }

    /// Sends what has arrived; returns whether the whole body has been sent.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut UpstreamStream,
    ) -> Result<bool, GatewayError> {
        let is_sent = self.poll_send(cx, stream)?;
        // A failure shows when the response is read.
        let is_flushed = Pin::new(stream).poll_flush(cx).is_ready();
        Ok(is_sent && is_flushed)
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut UpstreamStream,
    ) -> Result<bool, GatewayError> {
        self.awaits_client = false;
        if self.is_refused {
            return Ok(false);
        }
        loop {
            while !self.pending.is_empty() {
                match Pin::new(&mut *stream).poll_write(cx, &self.pending) {
                    Poll::Ready(Ok(count @ 1..)) => {
                        self.pending.advance(count);
                        self.last_progress = Instant::now();
                    }
                    Poll::Ready(_) => {
                        self.is_refused = true;
                        return Ok(false);
                    }
                    Poll::Pending => return Ok(false),
                }
            }
            // What has been sent is not needed any more.
            self.pending = Bytes::new();
            if self.has_ended {
                return Ok(true);
            }
            match self.body.poll_data(cx) {
                Poll::Ready(Some(data)) => self.pending = self.frame(data?),
                Poll::Ready(None) => {
                    self.has_ended = true;
                    if self.is_chunked {
                        self.pending = Bytes::from_static(b"0\r\n\r\n");
                    }
                }
                Poll::Pending => {
                    self.awaits_client = true;
                    return Ok(false);
                }
            }
        }
    }

    fn frame(&self, data: Bytes) -> Bytes {
        // An empty chunk would end the body.
        if !self.is_chunked || data.is_empty() {
            return data;
        }
        let mut chunk = BytesMut::with_capacity(data.len() + 20);
        chunk.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
        chunk.extend_from_slice(&data);
        chunk.extend_from_slice(b"\r\n");
        chunk.freeze()
    }
}
