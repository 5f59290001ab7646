//! Streams of HTTP/2, which end when their client takes nothing of an answer.
//!
//! While a client keeps the window of a stream shut, the HTTP library asks the body
//! for nothing, so that the body cannot notice. Whoever runs the stream can.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::rt::Executor;

use super::activity::{Activity, Stillness};
use super::answer_body::AnswerBody;

tokio::task_local! {
    /// What moves in the answer of the stream that is being run, once there is one.
    static ANSWER: OnceCell<Arc<Activity>>;
}

/// Runs the streams of HTTP/2.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    /// How long nothing may move in an answer.
    pub(super) idle: Duration,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let watched = until_still(stream, self.idle);
        tokio::spawn(ANSWER.scope(OnceCell::new(), watched));
    }
}

/// The body of the answer of this stream, watched from now on.
pub(super) fn watched(body: AnswerBody) -> AnswerBody {
    let (body, activity) = body.in_pieces();
    activity.moves();
    // A stream has one answer.
    let _ = ANSWER.try_with(|answer| answer.set(activity));
    body
}

/// Runs a stream until it ends, or nothing moves in its answer any more. With it go
/// its body, its upstream and, by the library, a word to the client.
async fn until_still(stream: impl Future<Output = ()>, idle: Duration) {
    let mut stream = pin!(stream);
    let mut stillness = Stillness::new(idle);
    poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        ANSWER.with(|answer| match answer.get() {
            Some(activity) => stillness.poll(context, activity),
            None => Poll::Pending,
        })
    })
    .await;
}
