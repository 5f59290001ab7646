//! A subscription to changes of stored rules.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use fluxgate_core::StoreError;
use tokio::time::timeout;

use crate::endpoint::CONNECT_TIMEOUT;
use crate::error::no_answer;
use crate::node::Node;
use crate::sentinel::Tenure;
use crate::subscription::Subscription;

/// Reports changes of stored rules. Messages may be lost, so poll as well.
#[derive(Debug)]
pub struct RuleSubscription {
    subscription: Subscription,
    /// With sentinels, the tenure of the primary.
    tenure: Option<Tenure>,
}

impl RuleSubscription {
    pub(super) async fn subscribe(node: &Arc<Node>, channel: &str) -> Result<Self, StoreError> {
        let subscribed = async {
            let (endpoint, tenure) = node.endpoint().await?;
            let subscription = Subscription::open(&endpoint, &[channel]).await?;
            Ok(Self {
                subscription,
                tenure,
            })
        };
        match timeout(2 * CONNECT_TIMEOUT, subscribed).await {
            Ok(changes) => changes,
            Err(_) => Err(no_answer(&node.name())),
        }
    }

    /// Waits for the next change; `None` if the connection is lost or the sentinels name another
    /// primary.
    pub async fn next(&mut self) -> Option<()> {
        let Some(tenure) = &mut self.tenure else {
            return self.subscription.next().await;
        };
        let mut ended = pin!(tenure.wait_for_end());
        let mut next = pin!(self.subscription.next());
        std::future::poll_fn(|cx| match ended.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => next.as_mut().poll(cx),
        })
        .await
    }
}
