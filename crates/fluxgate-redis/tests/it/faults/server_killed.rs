//! Redis is killed under load and started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fluxgate_core::store::{Micros, Retry};
use fluxgate_core::{Decision, Outcome};
use fluxgate_testkit::RedisServer;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::{Bench, RECOVERY, SLACK, one_band, store_at, until};

const DEADLINE: Duration = Duration::from_millis(100);

/// One decision, and how long it took.
type Taken = (Decision, Duration);

/// Clients that send requests almost without a pause, each for its own user,
/// until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Taken>>>,
}

impl Load {
    fn start(bench: &Bench, clients: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |number: usize| {
            let (bench, stop) = (bench.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let user = format!("user-{number}");
                let mut taken = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    let decision = bench.check(&user).await;
                    taken.push((decision, start.elapsed()));
                    // Denied requests return at once and would loop without end.
                    sleep(Duration::from_millis(2)).await;
                }
                taken
            })
        };
        let clients = (0..clients).map(client).collect();
        Self { stop, clients }
    }

    /// Returns the decisions of each client.
    async fn stop(self) -> Vec<Vec<Taken>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for client in self.clients {
            all.push(client.await.unwrap());
        }
        all
    }
}

/// Kills the server under load, starts it again after a while, waits for recovery
/// and returns the decisions of each client.
async fn killed_under_load(on_error: &str, capacity: u64) -> Vec<Vec<Taken>> {
    let server = RedisServer::start();
    let rules = one_band(on_error, "fixed_window", capacity, "300d");
    let store = store_at(server.url()).deadline(DEADLINE).near_cache(false);
    let bench = Bench::new(rules, store);
    bench.recovery("first").await;
    let load = Load::start(&bench, 16);
    let late = tokio::spawn(lateness(Arc::clone(&load.stop)));
    sleep(Duration::from_millis(100)).await;
    server.kill();
    until("the loss is noticed", || !bench.errors.all().is_empty()).await;
    sleep(Duration::from_millis(400)).await;
    server.restart();
    let took = bench.recovery("somebody").await;
    assert!(
        took < RECOVERY + SLACK,
        "{on_error}: recovered after {took:?}"
    );
    let all = load.stop().await;

    let times: Vec<Duration> = all.iter().flatten().map(|(_, took)| *took).collect();
    let longest = *times.iter().max().unwrap();
    let late = late.await.unwrap();
    let latest = *late.iter().max().unwrap();
    let (p99, late) = (p99(times), p99(late));
    assert!(
        p99 <= DEADLINE + Duration::from_millis(75) + late,
        "{on_error}: p99 is {p99:?}, and tasks run {late:?} late"
    );
    assert!(
        longest <= DEADLINE + SLACK + latest,
        "{on_error}: {longest:?}, and a task ran {latest:?} late"
    );
    for label in bench.errors.labels() {
        let fits = matches!(label, "redis_error" | "timeout" | "circuit_open");
        assert!(fits, "{on_error}: {:?}", bench.errors.all());
    }
    all
}

/// Returns how late a task runs that waits for a deadline, again and again until it is
/// stopped: on a busy machine, requests end that much later too.
async fn lateness(stop: Arc<AtomicBool>) -> Vec<Duration> {
    let mut late = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let due = Instant::now() + Duration::from_millis(10);
        sleep_until(due).await;
        late.push(due.elapsed());
    }
    late
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

fn count(taken: &[Taken], outcome: Outcome) -> usize {
    let of = taken
        .iter()
        .filter(|(decision, _)| decision.outcome() == outcome);
    of.count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_a_restart_fails_open_with_on_error_allow() {
    for taken in killed_under_load("allow", 1_000_000).await {
        assert!(count(&taken, Outcome::FailedOpen) > 0);
        for (decision, _) in &taken {
            let outcome = decision.outcome();
            assert!(decision.allowed(), "{outcome}");
            assert!(matches!(outcome, Outcome::Allowed | Outcome::FailedOpen));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_a_restart_fails_closed_with_on_error_deny() {
    for taken in killed_under_load("deny", 1_000_000).await {
        assert!(count(&taken, Outcome::FailedClosed) > 0);
        for (decision, _) in &taken {
            match decision.outcome() {
                Outcome::Allowed => assert!(decision.allowed()),
                Outcome::FailedClosed => {
                    assert!(!decision.allowed());
                    let second = Retry::After(Micros::new(1_000_000));
                    assert_eq!(decision.retry(), second);
                }
                outcome => panic!("{outcome}"),
            }
        }
    }
}

/// Three quotas at most: that of the server, that of this process while the
/// server was dead, and that of the server that came back empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_a_restart_keeps_the_limit_with_on_error_local() {
    const LIMIT: usize = 20;
    for taken in killed_under_load("local", LIMIT as u64).await {
        let admitted = |outcome| {
            let of = taken
                .iter()
                .filter(|(decision, _)| decision.outcome() == outcome);
            of.filter(|(decision, _)| decision.allowed()).count()
        };
        let here = admitted(Outcome::Fallback);
        assert!((1..=LIMIT).contains(&here), "{here} of {LIMIT}");
        let stored = admitted(Outcome::Allowed);
        assert!(stored <= 2 * LIMIT, "{stored} of {LIMIT} twice");
        let known = [Outcome::Allowed, Outcome::Denied, Outcome::Fallback];
        assert!(
            taken
                .iter()
                .all(|(decision, _)| known.contains(&decision.outcome()))
        );
    }
}
