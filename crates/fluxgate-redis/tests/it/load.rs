//! Clients that ask for one key without end, here or in processes of their own.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::{Limiter, Outcome, RuleSets};
use fluxgate_redis::RedisStore;

use crate::watched::{patient, rules, user};

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    /// Where `on_error` decided.
    pub(crate) failed: u64,
}

impl Tally {
    pub(crate) fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Allowed => self.admitted += 1,
            Outcome::Denied => self.denied += 1,
            Outcome::FailedClosed => self.failed += 1,
            outcome => panic!("not an outcome of these rules: {outcome:?}"),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.denied += other.denied;
        self.failed += other.failed;
    }
}

/// One key, two bands: two keys of Redis in one slot. Nothing comes back while
/// a test runs.
pub(crate) fn two_bands(algorithm: &str, capacity: u64) -> RuleSets {
    let slow = match algorithm {
        "token_bucket" | "leaky_bucket" => ", refill: 1, period: 1d",
        _ => "",
    };
    rules(&format!(
        "rule_sets: {{ api: {{ on_error: deny, rules: [ {{ id: r, scope: per_user, \
         algorithm: {algorithm}, bands: [ \
         {{ id: one, capacity: {capacity}, window: 300d{slow} }}, \
         {{ id: two, capacity: {capacity}, window: 299d{slow} }} ] }} ] }} }}"
    ))
}

/// So many clients, each so often, with a pause in between.
pub(crate) async fn load(
    limiter: Arc<Limiter<RedisStore>>,
    clients: usize,
    times: usize,
    pause: Duration,
) -> Tally {
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let limiter = Arc::clone(&limiter);
        tasks.push(tokio::spawn(async move {
            let mut tally = Tally::default();
            for _ in 0..times {
                let decision = limiter.check("api", &user("ann")).await.unwrap();
                tally.count(decision.outcome());
                tokio::time::sleep(pause).await;
            }
            tally
        }));
    }
    let mut sum = Tally::default();
    for task in tasks {
        sum.add(task.await.unwrap());
    }
    sum
}

const URLS: &str = "FLUXGATE_TEST_URLS";
const ALGORITHM: &str = "FLUXGATE_TEST_ALGORITHM";
pub(crate) const CLIENTS: usize = 32;
const TIMES: usize = 40;
const PAUSE: Duration = Duration::from_millis(40);

/// Another process with clients of its own, on a limit of 1000.
pub(crate) struct LoadProcess(Child);

impl LoadProcess {
    pub(crate) fn start(urls: &[String], algorithm: &str) -> Self {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "load::in_a_process_of_its_own", "--nocapture"])
            .env(URLS, urls.join(" "))
            .env(ALGORITHM, algorithm)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        Self(process.unwrap())
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    pub(crate) fn wait(self) -> Tally {
        let output = self.0.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let tally = text.split_once("tally ").and_then(|(_, tally)| {
            let mut numbers = tally.split_whitespace().map_while(|word| word.parse().ok());
            Some(Tally {
                admitted: numbers.next()?,
                denied: numbers.next()?,
                failed: numbers.next()?,
            })
        });
        tally.unwrap_or_else(|| panic!("{}: {text}", output.status))
    }
}

/// Not a test by itself: what [`LoadProcess`] runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_process_of_its_own() {
    let (Ok(urls), Ok(algorithm)) = (std::env::var(URLS), std::env::var(ALGORITHM)) else {
        return;
    };
    let urls = urls.split(' ').map(str::to_owned);
    let store = patient(urls).connect().await.unwrap();
    let limiter = Arc::new(Limiter::new(two_bands(&algorithm, 1000), store));
    let tally = load(limiter, CLIENTS, TIMES, PAUSE).await;
    let Tally {
        admitted,
        denied,
        failed,
    } = tally;
    println!("tally {admitted} {denied} {failed} ");
}
