//! Messages in Redis that rules may have changed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fluxgate_redis::{BackOff, RELOAD_CHANNEL, RuleStore, RuleSubscription, reason};
use tokio::sync::Notify;

/// The longest wait before the next attempt to subscribe.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The wait after the user was denied access: permissions change rarely.
const DENIED_WAIT: Duration = Duration::from_secs(30);
/// A connection that is lost sooner counts as failed.
const MIN_UPTIME: Duration = Duration::from_secs(1);

/// Subscribes to messages about rules and notifies `changed` of each, for as long as the runtime
/// runs. `changed` keeps one notification, so many messages at once are one.
pub(super) async fn listen(store: RuleStore, changed: Arc<Notify>) {
    let mut back_off = BackOff::up_to(LONGEST_WAIT);
    let mut log = MessageLog::default();
    loop {
        let mut denied = false;
        match store.subscribe().await {
            Ok(mut messages) => {
                log.requests_denied(&messages);
                // Once for messages that were missed, and then for each.
                changed.notify_one();
                let brief = tokio::time::timeout(MIN_UPTIME, pass_on(&mut messages, &changed));
                if brief.await.is_ok() {
                    log.silent("cut", &"the connection ended at once");
                } else {
                    log.connected();
                    back_off.reset();
                    pass_on(&mut messages, &changed).await;
                }
            }
            // The text may differ each time; the reason does not.
            Err(error) => {
                denied = error.reason == reason::NOPERM;
                log.silent(error.reason.name(), &error);
            }
        }
        let wait = if denied {
            DENIED_WAIT
        } else {
            back_off.next_wait()
        };
        tokio::time::sleep(wait).await;
    }
}

/// Notifies `changed` of each message until the connection is lost.
async fn pass_on(messages: &mut RuleSubscription, changed: &Notify) {
    while messages.next().await.is_some() {
        changed.notify_one();
    }
}

/// Logs why no messages arrive, once per reason.
#[derive(Debug, Default)]
struct MessageLog {
    /// The reason that was logged last, while there are no messages.
    silent: Option<&'static str>,
    /// Whether it was logged that the user has no access to the channel of requests.
    requests_denied: bool,
}

impl MessageLog {
    fn silent(&mut self, reason: &'static str, error: &dyn fmt::Display) {
        if self.silent.replace(reason) != Some(reason) {
            tracing::warn!(
                reason,
                %error,
                "no messages about rules arrive; changes take effect at the next poll"
            );
        }
    }

    fn connected(&mut self) {
        if self.silent.take().is_some() {
            tracing::info!("messages about rules arrive again");
        }
    }

    fn requests_denied(&mut self, messages: &RuleSubscription) {
        if let Some(error) = messages.without_requests()
            && !self.requests_denied
        {
            self.requests_denied = true;
            let channel = RELOAD_CHANNEL;
            tracing::info!(channel, %error, "no requests to reload the rules arrive");
        }
    }
}
