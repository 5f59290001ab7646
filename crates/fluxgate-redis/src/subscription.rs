//! A connection that receives published messages.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use fluxgate_core::StoreError;
use futures_core::Stream;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::time::timeout;

use crate::endpoint::{CONNECT_TIMEOUT, Endpoint};
use crate::error::{no_answer, store_error};

/// The time without a message after which the server is pinged.
const PING_AFTER: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// A subscription to some channels of one server.
pub(crate) struct Subscription {
    sink: PubSubSink,
    messages: PubSubStream,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

impl Subscription {
    pub(crate) async fn open(endpoint: &Endpoint, channels: &[&str]) -> Result<Self, StoreError> {
        let subscribed = async {
            let (mut sink, messages) = endpoint.pubsub().await?.split();
            let done = sink.subscribe(channels).await;
            done.map_err(|cause| store_error(&cause))?;
            Ok(Self { sink, messages })
        };
        match timeout(2 * CONNECT_TIMEOUT, subscribed).await {
            Ok(subscription) => subscription,
            Err(_) => Err(no_answer(&endpoint.name())),
        }
    }

    /// Waits for the next message; `None` if the connection is lost.
    pub(crate) async fn next(&mut self) -> Option<()> {
        loop {
            let messages = &mut self.messages;
            let next = std::future::poll_fn(|cx| Pin::new(&mut *messages).poll_next(cx));
            if let Ok(message) = timeout(PING_AFTER, next).await {
                return message.map(drop);
            }
            let alive = timeout(PING_TIMEOUT, self.sink.ping::<redis::Value>()).await;
            if !matches!(alive, Ok(Ok(_))) {
                return None;
            }
        }
    }
}
