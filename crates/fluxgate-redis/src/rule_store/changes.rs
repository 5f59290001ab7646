//! Hearing that stored rules have changed.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::StoreError;
use futures_core::Stream;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::time::timeout;

use crate::endpoint::CONNECT_TIMEOUT;
use crate::error::{store_error, timeout as no_answer};
use crate::node::Node;

/// After so long without a message the server is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(2);

/// Tells of changes to stored rules. A message may be lost: look now and then.
pub struct RuleChanges {
    sink: PubSubSink,
    messages: PubSubStream,
}

impl fmt::Debug for RuleChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleChanges").finish_non_exhaustive()
    }
}

impl RuleChanges {
    pub(super) async fn subscribe(node: &Arc<Node>, channel: &str) -> Result<Self, StoreError> {
        let subscribed = async {
            let (mut sink, messages) = node.pubsub().await?.split();
            let done = sink.subscribe(channel).await;
            done.map_err(|cause| store_error(&cause))?;
            Ok(Self { sink, messages })
        };
        match timeout(2 * CONNECT_TIMEOUT, subscribed).await {
            Ok(changes) => changes,
            Err(_) => Err(no_answer(&node.name())),
        }
    }

    /// Waits for the next change. `None` when the connection is lost.
    pub async fn next(&mut self) -> Option<()> {
        loop {
            let messages = &mut self.messages;
            let next = std::future::poll_fn(|cx| Pin::new(&mut *messages).poll_next(cx));
            if let Ok(message) = timeout(SILENCE, next).await {
                return message.map(drop);
            }
            let alive = timeout(PATIENCE, self.sink.ping::<redis::Value>()).await;
            if !matches!(alive, Ok(Ok(_))) {
                return None;
            }
        }
    }
}
