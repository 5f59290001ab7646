//! The body of a request, on its way to an upstream.

use std::future::poll_fn;
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
use super::upstream_connections::OpenBodyPermit;

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
    /// What has come and has not been passed on.
    first: Option<Polled>,
    /// Whether the client waits until it is asked for the body.
    awaits_continue: bool,
    /// Held until it has come as a whole.
    permit: Option<OpenBodyPermit>,
    /// Whether some of it has been passed on.
    has_begun: bool,
    /// Whether it is broken off, which is told at the next poll: until then, what
    /// was passed on is sent.
    is_broken: bool,
}

/// What came next.
type Polled = Option<Result<Frame<Bytes>, hyper::Error>>;

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
    /// `idle`. `awaits_continue` says whether the client waits until it is asked for.
    pub(super) fn new(
        incoming: Incoming,
        (most, awaits_continue): (Option<u64>, bool),
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
            first: None,
            awaits_continue,
            permit: None,
            has_begun: false,
            is_broken: false,
        };
        Self {
            streamed: Some(streamed),
        }
    }

    /// Whether some of it is still to come, and no permit is held for that. Waits for
    /// nothing.
    pub(super) async fn is_open(&mut self) -> bool {
        match &mut self.streamed {
            Some(streamed) if streamed.permit.is_none() => {
                poll_fn(|context| Poll::Ready(streamed.look_ahead(context))).await
            }
            _ => false,
        }
    }

    /// Holds a permit until the body has come as a whole.
    pub(super) fn hold(&mut self, permit: OpenBodyPermit) {
        if let Some(streamed) = &mut self.streamed {
            streamed.permit = Some(permit);
        }
    }
}

impl Streamed {
    /// Takes what has come; returns whether there is more to come.
    fn look_ahead(&mut self, context: &mut Context<'_>) -> bool {
        // Asking would make the library say 100 Continue.
        if self.first.is_none()
            && !self.awaits_continue
            && let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context)
        {
            self.first = Some(frame);
        }
        match &self.first {
            None => true,
            Some(Some(Ok(frame))) => frame.is_data() && !self.incoming.is_end_stream(),
            Some(Some(Err(_)) | None) => false,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if self.is_broken {
            return Poll::Ready(Some(Err(BrokenOff)));
        }
        let next = match self.first.take() {
            Some(first) => Poll::Ready(first),
            None => Pin::new(&mut self.incoming).poll_frame(context),
        };
        let frame = match next {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                self.activity.await_client(true);
                return match self.stillness.poll(context, &self.activity) {
                    Poll::Ready(()) => self.break_off(Trouble::BodyTimeout, context),
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
                            return self.break_off(Trouble::TooLarge(most), context);
                        }
                    }
                }
                self.has_begun = true;
                if self.incoming.is_end_stream() {
                    let _ = self.end();
                }
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(_)) => self.break_off(Trouble::BodyBroken, context),
            None => self.end(),
        }
    }

    fn end(&mut self) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        self.permit = None;
        self.activity.end_request();
        Poll::Ready(None)
    }

    fn break_off(
        &mut self,
        why: Trouble,
        context: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        self.activity.break_off(why);
        self.is_broken = true;
        if !self.has_begun {
            return Poll::Ready(Some(Err(BrokenOff)));
        }
        context.waker().wake_by_ref();
        Poll::Pending
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
        streamed.is_none_or(|it| it.first.is_none() && it.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let Some(streamed) = &self.streamed else {
            return SizeHint::with_exact(0);
        };
        let first = match &streamed.first {
            Some(Some(Ok(first))) => first.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        let first = u64::try_from(first).unwrap_or(u64::MAX);
        let rest = streamed.incoming.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(first));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(first));
        }
        hint
    }
}
