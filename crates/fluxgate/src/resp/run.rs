//! Decisions of one pipeline that the store must be asked for, under way
//! together.
//!
//! What is charged for one key does not depend on what is charged for another,
//! so calls with keys of their own may run side by side. Where a key comes
//! again, those before it are waited for, and so every key is charged in the
//! order of the commands.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::reply::Replies;
use super::throttle::{Throttle, Throttled};
use crate::engine::Engine;

/// How many are under way at once.
const MOST: usize = 64;

/// Decisions under way, in the order of the commands.
#[derive(Default)]
pub(super) struct Run<'a>(Vec<Decided<'a>>);

struct Decided<'a> {
    key: &'a [u8],
    decision: Decision<'a>,
}

enum Decision<'a> {
    UnderWay(Pin<Box<dyn Future<Output = Throttled> + Send + 'a>>),
    Made(Throttled),
}

impl<'a> Run<'a> {
    /// Adds one, which begins when the run is finished, or a full one is.
    pub(super) async fn push(
        &mut self,
        throttle: Throttle<'a>,
        engine: &'a Engine,
        replies: &mut Replies<'_>,
    ) {
        let key = throttle.key;
        if self.0.len() == MOST || self.0.iter().any(|other| other.key == key) {
            self.finish(replies).await;
        }
        let decision = Box::pin(async move { throttle.decide(engine).await });
        self.0.push(Decided {
            key,
            decision: Decision::UnderWay(decision),
        });
    }

    /// Makes all decisions and writes them.
    pub(super) async fn finish(&mut self, replies: &mut Replies<'_>) {
        if self.0.is_empty() {
            return;
        }
        poll_fn(|cx| {
            let mut all_made = true;
            for Decided { decision, .. } in &mut self.0 {
                if let Decision::UnderWay(under_way) = decision {
                    match under_way.as_mut().poll(cx) {
                        Poll::Ready(made) => *decision = Decision::Made(made),
                        Poll::Pending => all_made = false,
                    }
                }
            }
            match all_made {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        for Decided { decision, .. } in self.0.drain(..) {
            if let Decision::Made(made) = decision {
                made.write(replies);
            }
        }
    }
}
