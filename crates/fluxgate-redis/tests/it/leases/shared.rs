//! Instances that share a limit by leases, under saturating load: no interval admits more
//! than the rules say, nearly all of it is admitted, and few decisions take a call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fluxgate_core::{Clock, Limiter, RuleSets, SystemClock};
use fluxgate_redis::RedisStore;
use fluxgate_testkit::RedisServer;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{calls, leased};
use crate::support::{is_long, store_at, user};

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

/// Sends requests of one user to a limiter until a time. Returns how many.
pub(super) async fn hammer(
    limiter: Limiter<RedisStore>,
    admitted: Admitted,
    until: Instant,
) -> u64 {
    let clock = SystemClock::default();
    let ann = user("ann");
    let mut decisions = 0;
    while Instant::now() < until {
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

/// Runs instances with these rules at full load.
async fn saturate(server: &RedisServer, rules: &RuleSets, span: Duration) -> Load {
    let admitted = Admitted::default();
    let until = Instant::now() + span;
    let mut tasks = JoinSet::new();
    for _ in 0..INSTANCES {
        let limiter = Limiter::new(rules.clone(), store_at(server.url()).build().unwrap());
        for _ in 0..CALLERS {
            tasks.spawn(hammer(limiter.clone(), Arc::clone(&admitted), until));
        }
    }
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
    let band = "{ capacity: 10000, window: 1s, refill: 5000 }";
    let rules = leased("share: 3%, for: 1s", "token_bucket", band);
    let span = span();
    let Load {
        decisions,
        admitted,
    } = saturate(&server, &rules, span).await;
    expect_bucket(&admitted, 10_000, 5000);
    let possible = 10_000 + 5000 * span.as_secs();
    let count = admitted.len() as u64;
    assert!(count * 100 >= possible * 95, "{count} of {possible}");
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
    let span = span();
    let Load {
        decisions,
        admitted,
    } = saturate(&server, &rules, span).await;
    expect_windows(&admitted, 4000, SECOND);
    // Those between the first and the last are complete.
    let possible = 4000 * (span.as_secs() - 1);
    let count = admitted.len() as u64;
    assert!(count * 100 >= possible * 95, "{count} of {possible}");
    let calls = calls(&server);
    assert!(
        calls * 50 <= decisions,
        "{calls} calls, {decisions} decisions"
    );
}
