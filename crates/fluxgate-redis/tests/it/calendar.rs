//! Calendar bands by the server's own clock, on instances whose clocks differ from it.

use std::time::Duration;

use fluxgate_core::{Clock, RuleSets, SystemClock};
use fluxgate_testkit::{RedisServer, Skew};

use crate::support::{Bench, store_at};

/// March begins in Seoul.
const MARCH: u64 = 1_803_826_800_000_000;
const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

fn rules() -> RuleSets {
    let rules = "rule_sets: { api: { on_error: deny, rules: [ { id: r, scope: per_user, \
                 algorithm: fixed_window, \
                 bands: [ { capacity: 3, calendar: month, time_zone: Asia/Seoul } ] } ] } }";
    RuleSets::from_yaml(rules).unwrap()
}

/// Sets the server's clock.
fn set_clock(server: &RedisServer, micros: u64) {
    let now = SystemClock::default().now().micros();
    let skew = match micros.checked_sub(now) {
        Some(ahead) => Skew::Ahead(Duration::from_micros(ahead)),
        None => Skew::Behind(Duration::from_micros(now - micros)),
    };
    server.set_clock_offset(skew);
}

/// Sends requests to both instances in turn. Returns how many of six requests pass, and after how
/// many whole days the last one could be tried again.
async fn passed(instances: &[Bench; 2]) -> (usize, u64) {
    let mut passed = 0;
    let mut retry = Duration::ZERO;
    for index in 0..6 {
        let instance = &instances[index % 2];
        let decision = instance.check("ann").await;
        assert_eq!(instance.errors.all(), []);
        passed += usize::from(decision.allowed());
        retry = decision.retry_after().unwrap();
    }
    (passed, retry.as_secs().div_ceil(86_400))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_follow_the_servers_clock_forward_and_back() {
    let server = RedisServer::builder().clock_offset(Skew::NONE).start();
    set_clock(&server, MARCH - 60 * SECOND);
    let instance = || Bench::new(rules(), store_at(server.url()).near_cache(false));
    let instances = [instance(), instance()];
    // The last minute of February, then March, which has 31 days.
    assert_eq!(passed(&instances).await, (3, 1));
    set_clock(&server, MARCH);
    assert_eq!(passed(&instances).await, (3, 31));
    // Back in February, the units of March count until March is over.
    set_clock(&server, MARCH - 2 * DAY);
    assert_eq!(passed(&instances).await, (0, 33));
    // Two months earlier they count for January, and on.
    set_clock(&server, MARCH - 40 * DAY);
    assert_eq!(passed(&instances).await, (0, 12));
    set_clock(&server, MARCH - 27 * DAY);
    assert_eq!(passed(&instances).await, (3, 27));
    // A year ahead, and with its clock right again.
    set_clock(&server, MARCH + 365 * DAY);
    assert_eq!(passed(&instances).await.0, 3);
    set_clock(&server, MARCH + 400 * DAY);
    assert_eq!(passed(&instances).await.0, 3);
}

/// The boundary passes while many requests are on their way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_windows_admit_two_quotas_across_a_boundary() {
    let server = RedisServer::builder().clock_offset(Skew::NONE).start();
    let instance = || Bench::new(rules(), store_at(server.url()).near_cache(false));
    let instances = [instance(), instance()];
    // Connected, and with the script loaded, they decide often before the boundary.
    set_clock(&server, MARCH - 40 * DAY);
    for instance in &instances {
        instance.recovery("bob").await;
    }
    let mut cli = server.cli();
    let mut now = || u64::try_from(cli.time_micros()).unwrap();
    for number in 0..20 {
        let user = format!("ann-{number}");
        set_clock(&server, MARCH - SECOND);
        let mut passed = 0;
        let mut in_time = false;
        // Once more after the end.
        let mut is_over = false;
        while !is_over {
            is_over = now() >= MARCH + SECOND / 2;
            for instance in instances.iter().cycle().take(4) {
                passed += u64::from(instance.check(&user).await.allowed());
                assert_eq!(instance.errors.all(), []);
            }
            in_time |= passed == 3 && now() < MARCH;
        }
        // On a busy machine the boundary may have passed before the first quota was used.
        if in_time {
            assert_eq!(passed, 6);
            return;
        }
        assert!(passed <= 6, "{passed}");
    }
    panic!("it never takes less than a second");
}
