//! Writes a response over HTTP/2 to a client on the fast path.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use fluxgate_http::server::ClientStream;
use fluxgate_llm::MeterOutput;
use http_body::Frame;

use super::Connection;
use super::response::{BodyEnd, write_chunk};
use crate::engine::Engine;
use crate::exchange::{Framing, Http2Reader, ResponseError};
use crate::forward::Http2Response;
use crate::llm::MeteredCall;
use crate::request_record::{RequestRecord, early_end};

/// How much is collected before it is sent.
const FULL: usize = 32 * 1024;

type NextFrame = Option<Result<Frame<Bytes>, ResponseError>>;

impl<E: Engine, S: ClientStream> Connection<'_, E, S> {
    /// Copies the body of a response over HTTP/2 to the client, after its head.
    pub(super) async fn copy_http2_body(
        &mut self,
        response: Http2Response<()>,
        mut call: Option<Box<MeteredCall>>,
        idle: Duration,
        record: &mut RequestRecord,
    ) -> BodyEnd {
        let framing = response.exchange.framing;
        let (mut reader, mut buffers) =
            Http2Reader::new(response.exchange, response.assignment, idle, false);
        let is_chunked = match framing {
            Framing::None => false,
            Framing::Length(_) => call.as_ref().is_some_and(|call| call.removes_events),
            Framing::Chunked | Framing::UntilClose => true,
        };
        let write = |content: &[u8], out: &mut Vec<u8>| {
            if is_chunked {
                write_chunk(content, out);
            } else {
                out.extend_from_slice(content);
            }
        };
        let out = &mut buffers.output;
        let mut is_cut_off = false;
        let end = loop {
            let ready = poll_fn(|cx| Poll::Ready(arrived(reader.poll_frame(cx)))).await;
            if ready.is_none() || out.len() >= FULL {
                // A client must get what has arrived, if only the head.
                if !out.is_empty() && !self.client.send(out).await {
                    break BodyEnd::Early;
                }
                out.clear();
            }
            let next = match ready {
                Some(next) => Some(next),
                None => {
                    let waiting = poll_fn(|cx| reader.poll_frame(cx));
                    self.client.unless_gone(pin!(waiting)).await
                }
            };
            // If the client has left, a call is settled as it is dropped.
            let Some(next) = next else {
                break BodyEnd::Early;
            };
            match next {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    match call.as_mut().map(|call| call.feed(&data)) {
                        None | Some(MeterOutput::Unchanged) => {
                            record.bytes_out += data.len() as u64;
                            write(&data, out);
                        }
                        Some(MeterOutput::Instead(content)) => {
                            record.bytes_out += content.len() as u64;
                            write(&content, out);
                        }
                    }
                }
                Some(Err(_)) => {
                    is_cut_off = true;
                    // Without the last chunk, the client sees that the body is incomplete.
                    if let Some(call) = &mut call {
                        write(&call.cut_off(), out);
                    }
                    let _ = self.client.send(out).await;
                    break BodyEnd::Early;
                }
                None => {
                    if let Some(call) = &mut call {
                        write(&call.finish(), out);
                    }
                    if is_chunked {
                        out.extend_from_slice(b"0\r\n\r\n");
                    }
                    let is_sent = self.client.send(out).await;
                    break if is_sent {
                        BodyEnd::Complete
                    } else {
                        BodyEnd::Early
                    };
                }
            }
        };
        buffers.release();
        if end == BodyEnd::Early {
            record.failed(|| early_end(is_cut_off).to_owned());
        }
        end
    }
}

/// Returns a frame that has arrived.
fn arrived(polled: Poll<NextFrame>) -> Option<NextFrame> {
    match polled {
        Poll::Ready(next) => Some(next),
        Poll::Pending => None,
    }
}
