//! Follows the primary in the background.
//!
//! Each sentinel is polled about once a second, and at once when it publishes another primary.
//! The message itself is not trusted, since it has no config epoch.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Sentinels;
use crate::back_off::{BackOff, jitter};
use crate::lock::lock;
use crate::subscription::Subscription;

/// The longest time between two polls; see [`jitter`] for the shortest.
const POLL_INTERVAL: Duration = Duration::from_millis(1200);
/// The longest wait before a lost subscription is renewed.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// A subscription that is lost sooner than this counts as a failure.
const STABLE_AFTER: Duration = Duration::from_secs(1);
/// The channels on which a sentinel publishes another primary. The sentinel that leads the
/// failover names the new one after `+promoted-slave`; with several replicas, `+switch-master`
/// may follow much later. The other sentinels publish only `+switch-master`.
const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];

impl Sentinels {
    /// Watches the sentinels in the background, unless a task does already, and calls the result
    /// of `on_switch` whenever they name another primary. Must be called inside a Tokio runtime;
    /// the task ends with it or with [`Sentinels::unwatch`].
    pub(crate) fn watch<F: Fn() + Send + 'static>(self: &Arc<Self>, on_switch: impl FnOnce() -> F) {
        // Every command calls this, because the runtime of an earlier task may have ended. It
        // costs a load.
        if self.is_watched.load(Ordering::Relaxed) || self.is_watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let (guard, on_switch) = (WatchGuard(Arc::clone(self)), on_switch());
        let mut named = self.named.subscribe();
        let task = tokio::spawn(async move {
            let _tasks = spawn_tasks(&guard.0);
            loop {
                // Once for what happened before the subscription.
                on_switch();
                if named.changed().await.is_err() {
                    break;
                }
            }
        });
        *lock(&self.watcher) = Some(task.abort_handle());
    }

    /// Stops watching.
    pub(crate) fn unwatch(&self) {
        if let Some(watcher) = lock(&self.watcher).take() {
            watcher.abort();
        }
    }
}

/// Marks the sentinels as watched until it is dropped.
struct WatchGuard(Arc<Sentinels>);

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.0.is_watched.store(false, Ordering::Release);
    }
}

/// Starts the tasks that poll and listen; they run until the set is dropped.
fn spawn_tasks(sentinels: &Arc<Sentinels>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for index in 0..sentinels.sentinels.len() {
        tasks.spawn(poll(Arc::clone(sentinels), index));
        tasks.spawn(listen(Arc::clone(sentinels), index));
    }
    tasks
}

async fn poll(sentinels: Arc<Sentinels>, index: usize) {
    loop {
        sleep(jitter(POLL_INTERVAL)).await;
        // A sentinel that does not answer has no vote.
        let _ = sentinels.query(index).await;
    }
}

async fn listen(sentinels: Arc<Sentinels>, index: usize) {
    let endpoint = &sentinels.sentinels[index].endpoint;
    let mut back_off = BackOff::up_to(LONGEST_WAIT);
    loop {
        // If it cannot be opened, `poll` still queries.
        if let Ok(mut messages) = Subscription::open(endpoint, &CHANNELS).await {
            let opened = Instant::now();
            loop {
                // Once for messages from before the subscription, then for each message.
                let _ = sentinels.query(index).await;
                if messages.next().await.is_none() {
                    break;
                }
            }
            if opened.elapsed() >= STABLE_AFTER {
                back_off.reset();
            }
        }
        sleep(back_off.next_wait()).await;
    }
}
