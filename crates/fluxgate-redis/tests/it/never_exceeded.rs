//! Several instances on one server under saturating load: no interval admits more
//! than the rules say, while rules change and while waiting requests are
//! cancelled.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_core::store::Mode;
use fluxgate_core::{Clock, Decision, Limiter, RequestContext, RuleSets, SystemClock};
use fluxgate_redis::RedisStore;
use fluxgate_testkit::{RedisServer, WAIT_TIMEOUT};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::{is_long, rules, store_at};

const INSTANCES: usize = 3;
const SECOND: u64 = 1_000_000;

/// When units were admitted, by the server's clock.
type Passed = Arc<Mutex<Vec<(u64, u64)>>>;

/// The most that a rule admits from one instant to another, both included.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// Capacity, and refill per second.
    Bucket(u64, u64),
    /// Capacity, and window in µs.
    Aligned(u64, u64),
    Log(u64, u64),
}

impl Bound {
    /// In millionths of a unit.
    fn most(self, from: u64, to: u64) -> u64 {
        match self {
            Self::Bucket(capacity, refill) => capacity * SECOND + refill * (to - from),
            Self::Aligned(capacity, window) => {
                capacity * (to / window - from / window + 1) * SECOND
            }
            Self::Log(capacity, window) => capacity * ((to - from) / window + 1) * SECOND,
        }
    }
}

/// A rule before and after a change, with their bounds.
const CHANGES: [(&str, Bound, &str, Bound); 8] = [
    // window
    (
        "bands: [ { capacity: 100, window: 1s } ]",
        Bound::Bucket(100, 100),
        "bands: [ { capacity: 600, window: 1m } ]",
        Bound::Bucket(600, 10),
    ),
    // capacity: one instance with a smaller one
    (
        "bands: [ { capacity: 100, window: 1s } ]",
        Bound::Bucket(100, 100),
        "bands: [ { capacity: 20, window: 200ms } ]",
        Bound::Bucket(20, 100),
    ),
    // refill, with fractions that do not fit each other
    (
        "bands: [ { capacity: 30, window: 1s, refill: 30 } ]",
        Bound::Bucket(30, 30),
        "bands: [ { capacity: 30, window: 1s, refill: 70 } ]",
        Bound::Bucket(30, 70),
    ),
    // algorithm
    (
        "algorithm: leaky_bucket, bands: [ { capacity: 50, window: 1s } ]",
        Bound::Bucket(50, 50),
        "algorithm: token_bucket, bands: [ { capacity: 60, window: 2s } ]",
        Bound::Bucket(60, 30),
    ),
    (
        "bands: [ { capacity: 50, window: 1s } ]",
        Bound::Bucket(50, 50),
        "algorithm: fixed_window, bands: [ { capacity: 80, window: 1s } ]",
        Bound::Aligned(80, SECOND),
    ),
    (
        "algorithm: fixed_window, bands: [ { capacity: 40, window: 500ms } ]",
        Bound::Aligned(40, SECOND / 2),
        "algorithm: fixed_window, bands: [ { capacity: 90, window: 2s } ]",
        Bound::Aligned(90, 2 * SECOND),
    ),
    (
        "algorithm: sliding_log, bands: [ { capacity: 40, window: 500ms } ]",
        Bound::Log(40, SECOND / 2),
        "algorithm: sliding_window, bands: [ { capacity: 30, window: 500ms } ]",
        Bound::Aligned(30, SECOND / 2),
    ),
    (
        "algorithm: fixed_window, bands: [ { capacity: 90, window: 1s } ]",
        Bound::Aligned(90, SECOND),
        "algorithm: fixed_window, bands: [ { capacity: 30, window: 1s } ]",
        Bound::Aligned(30, SECOND),
    ),
];

fn rule_sets(after: bool) -> RuleSets {
    let sets = CHANGES.iter().enumerate().map(|(index, change)| {
        let rule = if after { change.2 } else { change.0 };
        format!("  s{index}: {{ on_error: deny, rules: [ {{ id: r, scope: global, {rule} }} ] }}\n")
    });
    rules(&format!("rule_sets:\n{}", sets.collect::<String>()))
}

/// Returns when a request was decided, by the server's clock.
fn decided_at(decision: &Decision) -> u64 {
    decision.reset_timestamp().micros() - decision.reset_micros().get()
}

fn instance(server: &RedisServer, after: bool) -> Limiter<RedisStore> {
    let store = store_at(server.url()).build().unwrap();
    Limiter::new(rule_sets(after), store)
}

/// As many requests of each rule show that it is under load.
const ENOUGH: usize = 50;

/// Sends requests to all rules in turn until a time, and until enough of each rule have
/// passed.
async fn hammer(limiter: Limiter<RedisStore>, passed: Vec<Passed>, until: Instant) {
    let context = RequestContext::default();
    let is_enough = |passed: &Passed| passed.lock().unwrap().len() > ENOUGH;
    while Instant::now() < until || !passed.iter().all(is_enough) {
        assert!(Instant::now() < until + WAIT_TIMEOUT, "too few pass");
        for (index, passed) in passed.iter().enumerate() {
            let decision = limiter.check(&format!("s{index}"), &context).await;
            if decision.allowed() {
                let mut passed = passed.lock().unwrap();
                passed.push((decided_at(&decision), 1));
            }
        }
    }
}

/// "rules changed one instance after another, under load": one instance stops in
/// the middle and another replaces it with the old rules, like a restart before
/// the new rules have arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_instances_change_their_rules_one_by_one() {
    let span = Duration::from_secs(if is_long() { 10 } else { 3 });
    let server = RedisServer::start();
    let passed: Vec<Passed> = CHANGES.iter().map(|_| Passed::default()).collect();
    let start = Instant::now();
    let first_change = Arc::new(AtomicU64::new(u64::MAX));
    let mut tasks = JoinSet::new();
    for index in 0..INSTANCES {
        // The first one is restarted in the middle.
        let lives = match index {
            0 => vec![(Duration::ZERO, span / 2), (span / 2, span)],
            _ => vec![(Duration::ZERO, span)],
        };
        let changes = span * (index as u32 + 1) / 4;
        for (from, to) in lives {
            let limiter = instance(&server, false);
            let (changing, first_change) = (limiter.clone(), Arc::clone(&first_change));
            tasks.spawn(async move {
                sleep_until(start + from.max(changes)).await;
                // The server has the clock of this machine.
                let now = SystemClock::default().now().micros();
                first_change.fetch_min(now, Ordering::Relaxed);
                changing.replace_rules(rule_sets(true)).await.unwrap();
            });
            for _ in 0..4 {
                let (limiter, passed) = (limiter.clone(), passed.clone());
                tasks.spawn(async move {
                    sleep_until(start + from).await;
                    hammer(limiter, passed, start + to).await;
                });
            }
        }
    }
    tasks.join_all().await;
    for (passed, (old, old_bound, new, new_bound)) in passed.iter().zip(CHANGES) {
        let passed = in_order(passed);
        assert!(passed.len() > ENOUGH, "it is under load: {old}");
        each_interval(&passed, |from, to, units| {
            let most = old_bound.most(from, to) + new_bound.most(from, to);
            let span = to - from;
            assert!(
                units * SECOND <= most,
                "{units} in {span} µs: from {old} to {new}"
            );
        });
        // While all have the old rule, they keep its bound.
        let before_changes = first_change.load(Ordering::Relaxed);
        let early = passed.iter().copied();
        let early: Vec<_> = early.take_while(|(at, _)| *at < before_changes).collect();
        each_interval(&early, |from, to, units| {
            assert!(units * SECOND <= old_bound.most(from, to), "{old}");
        });
    }
}

/// "waiters that leave": many requests wait, half of them are cancelled, others
/// come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_waiting_requests_are_cancelled() {
    const CAPACITY: u64 = 5;
    const REFILL: u64 = 40;
    let span = Duration::from_secs(if is_long() { 10 } else { 3 });
    let server = RedisServer::start();
    let rules = || {
        rules(&format!(
            "rule_sets: {{ s: {{ on_error: deny, rules: [ {{ id: r, scope: global, on_exceed: wait, \
             max_wait: 1s, bands: [ {{ capacity: {CAPACITY}, window: 1s, refill: {REFILL} }} ] }} ] }} }}"
        ))
    };
    let released = Passed::default();
    // Somewhat over half of the limit go on: a cancelled request leaves its turn unused.
    let enough = span.as_secs() * REFILL / 3;
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    let random = RandomState::new();
    for index in 0..60_u64 {
        let store = store_at(server.url()).max_cluster_waits(50);
        let limiter = Limiter::new(rules(), store.build().unwrap());
        let (released, random) = (Arc::clone(&released), random.clone());
        tasks.spawn(async move {
            let set = limiter.active_rule_set("s").unwrap();
            let mut round = 0;
            while start.elapsed() < span || units_of(&released) <= enough {
                assert!(start.elapsed() < span + WAIT_TIMEOUT, "too few go on");
                round += 1;
                let dice = random.hash_one((index, round));
                let cost = 1 + dice % CAPACITY;
                let context = RequestContext::builder().cost(cost).build();
                let decided = limiter.check_with_permit(&set, &context, Mode::Take);
                let (decision, _place) = decided.await;
                if !decision.allowed() {
                    sleep(Duration::from_millis(20)).await;
                    continue;
                }
                let delay = decision.delay();
                let leaves = dice >> 8 & 1 == 0 && delay > Duration::from_millis(50);
                if leaves {
                    let part = (dice >> 16) as u32 % 100;
                    sleep((delay - Duration::from_millis(50)) * part / 100).await;
                    let charge = decision.charge(&context).unwrap();
                    limiter.cancel(charge).await.unwrap();
                } else {
                    let at = decided_at(&decision) + decision.delay_micros().get();
                    released.lock().unwrap().push((at, cost));
                    sleep(delay).await;
                }
            }
        });
    }
    tasks.join_all().await;
    assert!(units_of(&released) > enough);
    let released = in_order(&released);
    each_interval(&released, |from, to, units| {
        // A delay was rounded up by less than 1 µs.
        let most = Bound::Bucket(CAPACITY, REFILL).most(from, to + 1);
        assert!(units * SECOND <= most, "{units} in {} µs", to - from);
    });
}

fn units_of(passed: &Passed) -> u64 {
    passed.lock().unwrap().iter().map(|(_, cost)| cost).sum()
}

fn in_order(passed: &Passed) -> Vec<(u64, u64)> {
    let mut passed = passed.lock().unwrap().clone();
    passed.sort_unstable();
    passed
}

/// Returns every interval between two admitted requests, with the units in it.
fn each_interval(passed: &[(u64, u64)], mut check: impl FnMut(u64, u64, u64)) {
    for (index, (from, _)) in passed.iter().enumerate() {
        let mut units = 0;
        for (to, cost) in &passed[index..] {
            units += cost;
            check(*from, *to, units);
        }
    }
}
