//! The body of a request, on its way to an upstream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::activity::{Activity, Stillness};
use super::pulse::Pulse;
use super::trouble::Trouble;

/// A body that is passed on frame by frame.
#[derive(Debug)]
pub(super) struct RequestBody {
    /// `None` for no body.
    streamed: Option<Streamed>,
}

#[derive(Debug)]
struct Streamed {
    incoming: Incoming,
    /// How large it may be in all, and how much of that is left.
    bound: Option<(u64, u64)>,
    activity: Arc<Activity>,
    stillness: Stillness,
    /// The connection that it comes from.
    pulse: Arc<Pulse>,
}

/// The body was broken off; why is kept where the answer is waited for.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request was broken off")]
pub(super) struct BrokenOff;

impl RequestBody {
    /// No body.
    pub(super) fn none() -> Self {
        Self { streamed: None }
    }

    /// This one, of at most so many bytes, in which something must move within
    /// `idle`.
    pub(super) fn new(
        incoming: Incoming,
        most: Option<u64>,
        idle: Duration,
        activity: &Arc<Activity>,
        pulse: &Arc<Pulse>,
    ) -> Self {
        if incoming.is_end_stream() {
            activity.end_request();
            return Self::none();
        }
        let streamed = Streamed {
            incoming,
            bound: most.map(|most| (most, most)),
            activity: Arc::clone(activity),
            stillness: Stillness::new(idle),
            pulse: Arc::clone(pulse),
        };
        Self {
            streamed: Some(streamed),
        }
    }
}

impl Streamed {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let frame = match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                self.activity.await_client(true);
                return match self.stillness.poll(context, &self.activity) {
                    Poll::Ready(()) => self.break_off(Trouble::BodyTimeout),
                    Poll::Pending => Poll::Pending,
                };
            }
        };
        self.activity.moves();
        self.activity.await_client(false);
        match frame {
            Some(Ok(frame)) => {
                // What comes behind the body could pass for headers where nobody
                // has looked at it.
                let Ok(data) = frame.into_data() else {
                    return self.end();
                };
                if let Some((most, left)) = &mut self.bound {
                    let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
                    match left.checked_sub(length) {
                        Some(rest) => *left = rest,
                        None => {
                            let most = *most;
                            return self.break_off(Trouble::TooLarge(most));
                        }
                    }
                }
                if self.incoming.is_end_stream() {
                    self.activity.end_request();
                }
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(_)) => self.break_off(Trouble::BodyBroken),
            None => self.end(),
        }
    }

    fn end(&self) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        self.activity.end_request();
        Poll::Ready(None)
    }

    fn break_off(&self, why: Trouble) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        self.activity.break_off(why);
        Poll::Ready(Some(Err(BrokenOff)))
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        if !self.activity.request_ended() {
            self.pulse.leave_unread();
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match &mut self.get_mut().streamed {
            Some(streamed) => streamed.poll(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let streamed = self.streamed.as_ref();
        streamed.is_none_or(|streamed| streamed.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let streamed = self.streamed.as_ref();
        streamed.map_or_else(|| SizeHint::with_exact(0), |it| it.incoming.size_hint())
    }
}
