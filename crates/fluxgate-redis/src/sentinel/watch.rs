//! Following the primary in the background.
//!
//! Each sentinel is asked about once a second, and at once when it publishes
//! that it has changed its mind. The message itself is not trusted: it carries
//! no config epoch.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Sentinels;
use crate::jitter::jitter;
use crate::subscription::Subscription;

/// The longest time between two questions; see [`jitter`] for the shortest.
const POLL: Duration = Duration::from_millis(1200);
/// The wait before a lost subscription is renewed, at first and at most.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// A subscription that is lost sooner than this counts as a failure.
const LASTING: Duration = Duration::from_secs(1);
/// Where a sentinel publishes that it has changed its mind. It names the new
/// primary from `+promoted-slave` on; with several replicas `+switch-master` may
/// follow much later. Sentinels that did not lead the failover publish only
/// `+switch-master`.
const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];

/// Starts the tasks that watch; they run until they are dropped.
pub(super) fn tasks(sentinels: &Arc<Sentinels>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for index in 0..sentinels.sentinels.len() {
        tasks.spawn(poll(Arc::clone(sentinels), index));
        tasks.spawn(listen(Arc::clone(sentinels), index));
    }
    tasks
}

async fn poll(sentinels: Arc<Sentinels>, index: usize) {
    loop {
        sleep(jitter(POLL)).await;
        // A sentinel that does not answer has no say.
        let _ = sentinels.ask(index).await;
    }
}

async fn listen(sentinels: Arc<Sentinels>, index: usize) {
    let endpoint = &sentinels.sentinels[index].endpoint;
    let mut wait = FIRST_WAIT;
    loop {
        // If it cannot be had, the poll still asks.
        if let Ok(mut messages) = Subscription::open(endpoint, &CHANNELS).await {
            let opened = Instant::now();
            loop {
                // First for what was published before, then for each message.
                let _ = sentinels.ask(index).await;
                if messages.next().await.is_none() {
                    break;
                }
            }
            if opened.elapsed() >= LASTING {
                wait = FIRST_WAIT;
            }
        }
        sleep(jitter(wait)).await;
        wait = (2 * wait).min(LONGEST_WAIT);
    }
}
