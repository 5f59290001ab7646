//! Instances with leases under load, all for one key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_core::{Clock, Outcome, RuleSets, SystemClock};
use fluxgate_redis::RedisStoreBuilder;
use fluxgate_testkit::{LeaseRecorder, Stopwatch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::leased;
use super::shared::{Admitted, expect_bucket};
use crate::support::{Bench, RECOVERY, SLACK, until};

pub(super) const CAPACITY: u64 = 300;
/// The units that may be on lease.
pub(super) const LEASED: u64 = 120;
pub(super) const REFILL: u64 = 1000;
pub(super) const DEADLINE: Duration = Duration::from_millis(200);
/// How long a fault lasts, and how long there is none before it.
pub(super) const PHASE: Duration = Duration::from_millis(350);

pub(super) fn bucket() -> RuleSets {
    let band = format!("{{ capacity: {CAPACITY}, window: 1s, refill: {REFILL} }}");
    leased("share: 40%, for: 200ms", "token_bucket", &band)
}

/// Instances under load, all for one key.
pub(super) struct Fleet {
    pub(super) benches: Vec<Bench>,
    admitted: Admitted,
    stop: Arc<AtomicBool>,
    callers: JoinSet<()>,
    recorder: LeaseRecorder,
}

impl Fleet {
    /// Starts three instances, and waits until they lease.
    pub(super) async fn start(rules: &RuleSets, store: impl Fn() -> RedisStoreBuilder) -> Self {
        let mut fleet = Self {
            benches: Vec::new(),
            admitted: Admitted::default(),
            stop: Arc::default(),
            callers: JoinSet::new(),
            recorder: LeaseRecorder::new(),
        };
        for _ in 0..3 {
            fleet.add(rules, store().deadline(DEADLINE));
        }
        sleep(PHASE).await;
        until("leases decide", || {
            let counts = |bench: &Bench| bench.store().lease_counts();
            let allowed = fleet.benches.iter().map(|bench| counts(bench).allowed);
            allowed.sum::<u64>() > 0
        })
        .await;
        fleet
    }

    pub(super) fn add(&mut self, rules: &RuleSets, store: RedisStoreBuilder) {
        let store = store.lease_trace(self.recorder.directory());
        let bench = Bench::new(rules.clone(), store);
        for _ in 0..2 {
            let (bench, stop) = (bench.clone(), Arc::clone(&self.stop));
            let admitted = Arc::clone(&self.admitted);
            self.callers.spawn(async move {
                let clock = SystemClock::default();
                while !stop.load(Ordering::Relaxed) {
                    let before = clock.now().micros();
                    let outcome = bench.check("ann").await.outcome();
                    match outcome {
                        Outcome::Allowed => {
                            let after = clock.now().micros();
                            admitted.lock().unwrap().push((before, after));
                        }
                        Outcome::FailedClosed => sleep(Duration::from_millis(1)).await,
                        _ => tokio::task::yield_now().await,
                    }
                }
            });
        }
        self.benches.push(bench);
    }

    pub(super) fn count(&self) -> usize {
        self.admitted.lock().unwrap().len()
    }

    /// Waits until all instances have been decided for by the store again, after a fault has
    /// ended.
    pub(super) async fn recovers(&self) {
        let watch = Stopwatch::start();
        for bench in &self.benches {
            bench.recovery("bob").await;
        }
        let before = self.count();
        until("ann is admitted again", || self.count() > before).await;
        let took = watch.elapsed();
        assert!(took < RECOVERY + SLACK, "recovered after {took:?}");
        // Leases, too.
        sleep(PHASE).await;
    }

    /// Stops, and returns what was admitted, in the order of time.
    pub(super) async fn stop(mut self) -> Vec<(u64, u64)> {
        self.stop_callers().await
    }

    async fn stop_callers(&mut self) -> Vec<(u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(caller) = self.callers.join_next().await {
            caller.unwrap();
        }
        // The instances end, too.
        self.benches.clear();
        let mut admitted = std::mem::take(&mut *self.admitted.lock().unwrap());
        admitted.sort_unstable();
        admitted
    }

    pub(super) fn labels(&self) -> Vec<&'static str> {
        let labels = self.benches.iter().flat_map(|bench| bench.errors.labels());
        let mut labels: Vec<_> = labels.collect();
        labels.sort_unstable();
        labels.dedup();
        labels
    }

    /// Lets a fault last for a while, and until the instances have met it.
    pub(super) async fn meets(&self, label: &str) {
        sleep(PHASE).await;
        until(label, || self.labels().contains(&label)).await;
    }

    /// Panics if the store failed otherwise than by being late, as on a busy machine.
    pub(super) fn expect_only_timeouts(&self) {
        let labels = self.labels();
        let is_late = |label: &&str| matches!(*label, "timeout" | "circuit_open");
        assert!(labels.iter().all(is_late), "{labels:?}");
    }

    /// Waits for the end of a fault, and checks the limit, and that all instances have done what
    /// the specification allows.
    pub(super) async fn keeps_the_limit(mut self) {
        self.recovers().await;
        let admitted = self.stop_callers().await;
        expect_bucket(&admitted, CAPACITY, REFILL);
        let replayed = self.recorder.traces().replay(LEASED).unwrap();
        assert!(replayed.spent > 0 && replayed.answers > 0, "{replayed:?}");
    }
}
