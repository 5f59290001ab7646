//! Whether anything moves: what both directions of an exchange share.

use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::open::{MOST_INTERIM, TOO_MANY_INTERIM};
use super::trouble::Trouble;
use crate::config::Timeouts;
use crate::telemetry::uptime_millis;

/// What both directions of an exchange know of each other.
#[derive(Debug)]
pub(super) struct Activity {
    /// When something last moved, in milliseconds.
    moved: AtomicU64,
    /// Whether all of the request has been passed on.
    request_ended: AtomicBool,
    /// Whether the rest of it is waited for, which is the client's to send.
    awaits_client: AtomicBool,
    /// Why its body was broken off.
    broken: OnceLock<Trouble>,
    /// Interim answers of the upstream.
    interim: AtomicUsize,
    /// Notified when there are too many of them.
    too_many_interim: Notify,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            moved: AtomicU64::new(uptime_millis()),
            request_ended: AtomicBool::new(false),
            awaits_client: AtomicBool::new(false),
            broken: OnceLock::new(),
            interim: AtomicUsize::new(0),
            too_many_interim: Notify::new(),
        }
    }

    /// Counts an interim answer of the upstream.
    pub(super) fn count_interim(&self) {
        if self.interim.fetch_add(1, Ordering::Relaxed) == MOST_INTERIM {
            self.too_many_interim.notify_one();
        }
    }

    /// Fails if there were too many interim answers.
    pub(super) fn check_interim(&self) -> Result<(), Trouble> {
        match self.interim.load(Ordering::Relaxed) > MOST_INTERIM {
            true => Err(Trouble::Malformed(TOO_MANY_INTERIM)),
            false => Ok(()),
        }
    }

    /// Something moved.
    pub(super) fn moves(&self) {
        self.moved.store(uptime_millis(), Ordering::Relaxed);
    }

    /// For how long nothing has.
    pub(super) fn still_for(&self) -> Duration {
        let moved = self.moved.load(Ordering::Relaxed);
        Duration::from_millis(uptime_millis().saturating_sub(moved))
    }

    /// Says whether the rest of the request is waited for.
    pub(super) fn await_client(&self, awaits: bool) {
        self.awaits_client.store(awaits, Ordering::Relaxed);
    }

    /// Waits until nothing has moved for too long, and tells whose fault that is:
    /// the upstream need not answer while the client has to send. Also ends when
    /// there are too many interim answers.
    pub(super) async fn too_late(&self, timeouts: &Timeouts) -> Trouble {
        tokio::select! {
            () = self.too_many_interim.notified() => Trouble::Malformed(TOO_MANY_INTERIM),
            trouble = self.still_too_long(timeouts) => trouble,
        }
    }

    async fn still_too_long(&self, timeouts: &Timeouts) -> Trouble {
        loop {
            let (most, trouble) = match self.awaits_client.load(Ordering::Relaxed) {
                true => (timeouts.idle, Trouble::BodyTimeout),
                false => (timeouts.request, Trouble::AnswerTimeout),
            };
            let Some(left) = left(most, self.still_for()) else {
                return trouble;
            };
            // Meanwhile it may become the other's turn.
            tokio::time::sleep(left.min(timeouts.request)).await;
        }
    }

    pub(super) fn end_request(&self) {
        self.request_ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn request_ended(&self) -> bool {
        self.request_ended.load(Ordering::Relaxed)
    }

    pub(super) fn break_off(&self, why: Trouble) {
        // Only the first can be the cause.
        let _ = self.broken.set(why);
    }

    /// Why the body of the request was broken off, if it was.
    pub(super) fn broken(&self) -> Option<&Trouble> {
        self.broken.get()
    }
}

/// Notices that nothing moves, while somebody waits for a body.
#[derive(Debug)]
pub(super) struct Stillness {
    most: Duration,
    /// Made when it is first needed: most bodies are there at once.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stillness {
    pub(super) fn new(most: Duration) -> Self {
        Self { most, timer: None }
    }

    /// Ready once nothing has moved for too long.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, activity: &Activity) -> Poll<()> {
        loop {
            let Some(left) = left(self.most, activity.still_for()) else {
                return Poll::Ready(());
            };
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(left)));
            // One that fires too early is set again: moving it each time that
            // something moves would cost more.
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            timer.as_mut().reset(Instant::now() + left);
        }
    }
}

fn left(most: Duration, still_for: Duration) -> Option<Duration> {
    let left = most.checked_sub(still_for)?;
    (!left.is_zero()).then_some(left)
}
