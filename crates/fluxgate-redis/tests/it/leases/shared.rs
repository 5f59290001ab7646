//! Instances that share a limit by leases, under saturating load: no interval admits more
//! than the rules say, nearly all of it is admitted, and few decisions take a call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_core::{Clock, Limiter, RuleSets, SystemClock};
use fluxgate_redis::RedisStore;
use fluxgate_testkit::RedisServer;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{calls, leased};
use crate::support::{is_long, store_at, until, user};

const INSTANCES: usize = 3;
const CALLERS: usize = 4;
const SECOND: u64 = 1_000_000;

/// The instants before and after each admitted request, by the clock of this machine, which
/// is the server's, too.
pub(super) type Admitted = Arc<Mutex<Vec<(u64, u64)>>>;

/// What a load came to.
pub(super) struct Load {
    pub(super) decisions: u64,
    pub(super) admitted: Vec<(u64, u64)>,
}

/// Sends requests of one user to a limiter until it is stopped. Returns how many.
async fn hammer(limiter: Limiter<RedisStore>, admitted: Admitted, stop: Arc<AtomicBool>) -> u64 {
    let clock = SystemClock::default();
    let ann = user("ann");
    let mut decisions = 0;
    while !stop.load(Ordering::Relaxed) {
        // As many as run without giving way to other tasks.
        for _ in 0..16 {
            let before = clock.now().micros();
            let decision = limiter.check("api", &ann).await;
            decisions += 1;
            if decision.allowed() {
                admitted
                    .lock()
                    .unwrap()
                    .push((before, clock.now().micros()));
            }
        }
        tokio::task::yield_now().await;
    }
    decisions
}

/// Runs instances with these rules at full load for a while, and until nearly all is used:
/// while the machine is busy with others, they do not request all units.
async fn saturate(
    server: &RedisServer,
    rules: &RuleSets,
    mut nearly_all_used: impl FnMut(&[(u64, u64)], Duration) -> bool,
) -> Load {
    let admitted = Admitted::default();
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..INSTANCES {
        let limiter = Limiter::new(rules.clone(), store_at(server.url()).build().unwrap());
        for _ in 0..CALLERS {
            tasks.spawn(hammer(
                limiter.clone(),
                Arc::clone(&admitted),
                Arc::clone(&stop),
            ));
        }
    }
    sleep(span()).await;
    until("nearly all is used", || {
        let so_far = start.elapsed();
        let mut admitted = admitted.lock().unwrap().clone();
        admitted.sort_unstable();
        nearly_all_used(&admitted, so_far)
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    let decisions = tasks.join_all().await.into_iter().sum();
    let mut admitted = std::mem::take(&mut *admitted.lock().unwrap());
    admitted.sort_unstable();
    Load {
        decisions,
        admitted,
    }
}

/// Panics if any interval has more than a bucket with this capacity and this refill per
/// second admits. The instants must be sorted.
pub(super) fn expect_bucket(admitted: &[(u64, u64)], capacity: u64, refill: u64) {
    // From before the first to after the last of any requests in a row: with S requests up
    // to the last and R the refill, S·s − R·last − (S'·s − R·first) ≤ C·s.
    let (mut least, mut last) = (i128::MAX, 0);
    for (number, (before, after)) in admitted.iter().enumerate() {
        let units = |count: usize| i128::from(SECOND) * count as i128;
        least = least.min(units(number) - i128::from(refill) * i128::from(*before));
        last = last.max(*after);
        let most = units(number + 1) - i128::from(refill) * i128::from(last) - least;
        let over = most - i128::from(SECOND) * i128::from(capacity);
        assert!(over <= 0, "{over} millionths over after {number} requests");
    }
}

/// Panics if any window has more than this capacity.
pub(super) fn expect_windows(admitted: &[(u64, u64)], capacity: usize, window: u64) {
    let mut windows = std::collections::HashMap::<u64, usize>::new();
    for (before, after) in admitted {
        if before / window == after / window {
            *windows.entry(before / window).or_default() += 1;
        }
    }
    for (window, count) in windows {
        assert!(count <= capacity, "{count} in window {window}");
    }
}

fn span() -> Duration {
    Duration::from_secs(if is_long() { 20 } else { 4 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leased_bucket_is_never_exceeded_and_nearly_all_of_it_is_used() {
    let server = RedisServer::start();
    // It takes longer to fill than the machine may be busy with others.
    let band = "{ capacity: 10000, window: 1s, refill: 1000 }";
    let rules = leased("share: 3%, for: 1s", "token_bucket", band);
    let Load {
        decisions,
        admitted,
    } = saturate(&server, &rules, |admitted, span| {
        let possible = 10_000_000 + 1000 * span.as_millis();
        admitted.len() as u128 * 1000 * 100 >= possible * 95
    })
    .await;
    expect_bucket(&admitted, 10_000, 1000);
    let calls = calls(&server);
    assert!(
        calls * 50 <= decisions,
        "{calls} calls, {decisions} decisions"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leased_window_is_never_exceeded_and_nearly_all_of_it_is_used() {
    let server = RedisServer::start();
    let band = "{ capacity: 4000, window: 1s }";
    let rules = leased("share: 20%, for: 500ms", "fixed_window", band);
    let Load {
        decisions,
        admitted,
    } = saturate(&server, &rules, |admitted, _| {
        // Three windows in a row.
        let count = |window| {
            let is_in = |(before, _): &&(u64, u64)| before / SECOND == window;
            admitted.iter().filter(is_in).count()
        };
        let [(first, _), .., (last, _)] = admitted else {
            return false;
        };
        let mut starts = first / SECOND..last / SECOND;
        starts.any(|start| {
            let sum: usize = (start..start + 3).map(count).sum();
            sum * 100 >= 3 * 4000 * 95
        })
    })
    .await;
    expect_windows(&admitted, 4000, SECOND);
    let calls = calls(&server);
    assert!(
        calls * 50 <= decisions,
        "{calls} calls, {decisions} decisions"
    );
}
