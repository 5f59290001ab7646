//! Concurrent calls to the store for the commands of one pipeline.
//!
//! Calls with different keys are independent, so they run concurrently. A call whose key is
//! in use waits for the earlier calls, so each key is charged in the order of the commands.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::reply::Replies;
use super::throttle::{Throttle, ThrottleDecision};
use crate::engine::Engine;

/// How many calls run at once.
const MAX_CALLS: usize = 64;

/// Decisions that are not yet written, in the order of the commands.
#[derive(Default)]
pub(super) struct PendingDecisions<'a>(Vec<PendingEntry<'a>>);

struct PendingEntry<'a> {
    key: &'a [u8],
    decision: DecisionState<'a>,
}

enum DecisionState<'a> {
    Pending(Pin<Box<dyn Future<Output = ThrottleDecision> + Send + 'a>>),
    Ready(ThrottleDecision),
}

impl<'a> PendingDecisions<'a> {
    /// Adds a command. Its call starts with the next [`finish`](Self::finish).
    pub(super) async fn push(
        &mut self,
        throttle: Throttle<'a>,
        engine: &'a Engine,
        replies: &mut Replies<'_>,
    ) {
        let key = throttle.key;
        if self.0.len() == MAX_CALLS || self.0.iter().any(|other| other.key == key) {
            self.finish(replies).await;
        }
        let decision = Box::pin(async move { throttle.decide(engine).await });
        self.0.push(PendingEntry {
            key,
            decision: DecisionState::Pending(decision),
        });
    }

    /// Waits for all decisions and writes them.
    pub(super) async fn finish(&mut self, replies: &mut Replies<'_>) {
        if self.0.is_empty() {
            return;
        }
        poll_fn(|cx| {
            let mut all_ready = true;
            for PendingEntry { decision, .. } in &mut self.0 {
                if let DecisionState::Pending(pending) = decision {
                    match pending.as_mut().poll(cx) {
                        Poll::Ready(decided) => *decision = DecisionState::Ready(decided),
                        Poll::Pending => all_ready = false,
                    }
                }
            }
            if all_ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        for PendingEntry { decision, .. } in self.0.drain(..) {
            if let DecisionState::Ready(decided) = decision {
                decided.write(replies);
            }
        }
    }
}
