//! Holds on one server, by its own clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fluxgate_core::key::RuleNumber;
use fluxgate_core::store::{Checks, Group, HoldRequest, Micros, Mode, Subject, Verdict};
use fluxgate_core::{
    Algorithm, Band, HoldId, Limit, Limiter, Outcome, RequestContext, Settlement, Store,
};
use fluxgate_redis::{HashKeys, HashSecret, RedisStore};
use fluxgate_testkit::{Cli, FaultProxy, RedisServer, Skew, wait_until};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{held, left, reserve, slots_and_tokens};
use crate::support::{ALGORITHMS, Bench, rules, store_at, until_async};

const SLOTS: u64 = 5;

async fn limiter(url: String, algorithm: &str) -> Limiter<RedisStore> {
    let store = store_at(url).connect().await.unwrap();
    Limiter::new(slots_and_tokens(SLOTS, "1m", algorithm), store)
}

#[tokio::test]
async fn any_process_settles_a_hold_by_its_id() {
    let server = RedisServer::start();
    for algorithm in ALGORITHMS {
        server.cli().command(&["FLUSHALL"]).expect_ok();
        let limiter = limiter(server.url(), algorithm).await;
        // It knows none of the rules.
        let other = store_at(server.url()).connect().await.unwrap();
        let id = held(&limiter, "ann", "400").await;
        assert_eq!(left(&limiter, "r", "ann").await, SLOTS - 1);
        assert_eq!(left(&limiter, "t", "ann").await, 600);
        let tokens = [("tokens", 150)];
        let settled = other.settle(id, Settlement::Attributes(&tokens)).await;
        let settled = settled.unwrap().unwrap();
        assert_eq!(
            (settled.charged, settled.uncharged),
            (150, 0),
            "{algorithm}"
        );
        assert_eq!(left(&limiter, "r", "ann").await, SLOTS, "{algorithm}");
        assert_eq!(left(&limiter, "t", "ann").await, 850, "{algorithm}");
        assert_eq!(other.settle(id, Settlement::RELEASE).await, Ok(None));
        // What does not fit is reported.
        let id = held(&limiter, "ann", "50").await;
        let settled = other.settle(id, Settlement::Cost(2_000)).await.unwrap();
        let settled = settled.unwrap();
        assert_eq!(settled.charged + settled.uncharged, 2_000);
        // 200 are charged, and the band owes no more than its capacity; a bucket has
        // refilled a little.
        assert!(
            (150..=151).contains(&settled.uncharged),
            "{algorithm}: {settled:?}"
        );
        assert_eq!(
            reserve(&limiter, "ann", "1").await.outcome(),
            Outcome::Denied
        );
    }
}

#[tokio::test]
async fn a_hold_without_slots_and_a_release_leave_only_the_charge() {
    let server = RedisServer::start();
    let mut cli = server.cli();
    let bench = Bench::new(
        crate::support::one_band("deny", "fixed_window", 10, "300d"),
        store_at(server.url()),
    );
    let context = RequestContext::builder()
        .user("ann")
        .cost(4)
        .hold(super::MINUTE)
        .build();
    let id = bench.limiter.check("api", &context).await.hold().unwrap();
    assert_eq!(cli.dbsize(), 2, "the count and the record");
    assert!(
        bench
            .limiter
            .settle(id, Settlement::AsReserved)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!((cli.dbsize(), bench.left("ann").await), (1, 6));
    // Without a hold there is no record.
    assert!(bench.check("ann").await.allowed());
    assert_eq!((cli.dbsize(), bench.left("ann").await), (1, 5));
}

#[tokio::test]
async fn a_record_takes_a_few_hundred_bytes_and_names_no_hashed_identity() {
    let server = RedisServer::start();
    let store = store_at(server.url()).hash_keys(HashKeys::All, HashSecret::new(b"secret"));
    let store = store.connect().await.unwrap();
    let limiter = Limiter::new(slots_and_tokens(SLOTS, "1m", "sliding_log"), store);
    let id = held(&limiter, "ann-with-a-long-name", "400").await;
    let mut cli = server.cli();
    let key = format!("fluxgate:2:hold2:{{{id}}}");
    let record = cli.command(&["GET", &key]).bytes().to_vec();
    assert!(record.len() < 200, "{} bytes", record.len());
    assert!(!record.windows(3).any(|bytes| bytes == b"ann"));
    let other = store_at(server.url()).connect().await.unwrap();
    assert!(
        other
            .settle(id, Settlement::RELEASE)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(cli.dbsize(), 0, "a log without events is deleted");
}

#[tokio::test]
async fn nothing_is_left_when_holds_have_expired() {
    let server = RedisServer::builder().clock_offset(Skew::NONE).start();
    let limiter = limiter(server.url(), "sliding_log").await;
    let mut cli = server.cli();
    let ids = [
        held(&limiter, "ann", "1").await,
        held(&limiter, "bob", "1").await,
    ];
    assert!(
        limiter
            .renew(ids[1], Duration::from_secs(3600))
            .await
            .unwrap()
    );
    assert_eq!(cli.keys("*:2:hold2:*").len(), 2);
    server.set_clock_offset(Skew::Ahead(Duration::from_secs(61)));
    for id in ids {
        assert_eq!(limiter.settle(id, Settlement::RELEASE).await, Ok(None));
        assert!(!limiter.renew(id, super::MINUTE).await.unwrap());
    }
    assert_eq!(left(&limiter, "r", "ann").await, SLOTS);
    assert_eq!(left(&limiter, "t", "ann").await, 999, "it stays charged");
    // The log of 300 days.
    server.set_clock_offset(Skew::Ahead(Duration::from_secs(301 * 86_400)));
    wait_until("all keys to expire", || {
        cli.keys("*").is_empty() && cli.dbsize() == 0
    });
}

#[tokio::test]
async fn renewed_slots_live_on_and_all_are_renewed_at_once() {
    let server = RedisServer::builder().clock_offset(Skew::NONE).start();
    let rules = slots_and_tokens(1_000, "1m", "fixed_window");
    let store = store_at(server.url()).connect().await.unwrap();
    let limiter = Limiter::new(rules, store);
    let mut holds: Vec<(HoldId, Micros)> = Vec::new();
    for _ in 0..300 {
        holds.push((held(&limiter, "ann", "1").await, Micros::new(60_000_000)));
    }
    let forgotten = holds.pop().unwrap().0;
    server.set_clock_offset(Skew::Ahead(Duration::from_secs(50)));
    let mut cli = server.cli();
    let calls = cli.calls("evalsha");
    let renewed = limiter.store().renew(&holds).await.unwrap();
    assert_eq!(renewed, vec![true; 299]);
    let calls = cli.calls("evalsha") - calls;
    assert!(calls <= 30, "{calls} calls for 299 holds");
    server.set_clock_offset(Skew::Ahead(Duration::from_secs(70)));
    assert_eq!(left(&limiter, "r", "ann").await, 1_000 - 299);
    assert!(!limiter.renew(forgotten, super::MINUTE).await.unwrap());
    server.set_clock_offset(Skew::Ahead(Duration::from_secs(111)));
    assert_eq!(left(&limiter, "r", "ann").await, 1_000);
}

#[tokio::test]
async fn a_clock_that_goes_back_frees_no_slot_and_keeps_none_for_longer_than_a_hold() {
    let server = RedisServer::builder().clock_offset(Skew::NONE).start();
    let limiter = limiter(server.url(), "fixed_window").await;
    for _ in 0..SLOTS {
        held(&limiter, "ann", "1").await;
    }
    let hour = Duration::from_secs(3600);
    server.set_clock_offset(Skew::Behind(hour));
    assert_eq!(
        reserve(&limiter, "ann", "1").await.outcome(),
        Outcome::Denied
    );
    server.set_clock_offset(Skew::Behind(hour - Duration::from_secs(55)));
    assert_eq!(
        reserve(&limiter, "ann", "1").await.outcome(),
        Outcome::Denied
    );
    server.set_clock_offset(Skew::Behind(hour - Duration::from_secs(61)));
    assert!(reserve(&limiter, "ann", "1").await.allowed());
    assert_eq!(left(&limiter, "r", "ann").await, SLOTS - 1);
}

#[tokio::test]
async fn a_denial_by_slots_is_not_remembered() {
    let server = RedisServer::start();
    let limiter = limiter(server.url(), "fixed_window").await;
    let other = self::limiter(server.url(), "fixed_window").await;
    let mut last = held(&limiter, "ann", "1").await;
    for _ in 1..SLOTS {
        last = held(&limiter, "ann", "1").await;
    }
    assert!(!reserve(&limiter, "ann", "1").await.allowed());
    other.settle(last, Settlement::RELEASE).await.unwrap();
    assert!(reserve(&limiter, "ann", "1").await.allowed());
    // A denial by a rate alone still is.
    let bench = Bench::new(
        crate::support::one_band("deny", "fixed_window", 1, "300d"),
        store_at(server.url()),
    );
    assert!(bench.check("bob").await.allowed());
    let mut cli = server.cli();
    let mut tries = 0..60;
    loop {
        assert!(tries.next().is_some(), "it never takes less than a second");
        let start = Instant::now();
        assert!(!bench.check("bob").await.allowed());
        let calls = cli.calls("evalsha");
        assert!(!bench.check("bob").await.allowed());
        let asked = cli.calls("evalsha") - calls;
        // A denial is remembered for a second.
        if asked == 0 {
            break;
        }
        assert!(start.elapsed() > Duration::from_millis(900), "it is not");
    }
}

#[tokio::test]
async fn a_settlement_that_returns_units_clears_remembered_denials() {
    let server = RedisServer::start();
    let bench = Bench::new(
        crate::support::one_band("deny", "fixed_window", 10, "300d"),
        store_at(server.url()),
    );
    let context = RequestContext::builder()
        .user("ann")
        .cost(10)
        .hold(super::MINUTE)
        .build();
    let id = bench.limiter.check("api", &context).await.hold().unwrap();
    assert!(!bench.check("ann").await.allowed());
    bench.limiter.settle(id, Settlement::Cost(9)).await.unwrap();
    assert!(bench.check("ann").await.allowed());
}

/// The permissions that `docs/operations.md` lists.
#[tokio::test]
async fn holds_need_one_more_permission_than_decisions() {
    const COMMANDS: &str = "+evalsha +eval +script|load +ping +time +get +mget +exists +psetex \
        +pexpire +unlink +zrange +zadd +zcount +zcard +zrem +zremrangebyrank +zscore";
    let user = format!("limiter on >secret ~fluxgate:* resetchannels -@all {COMMANDS}");
    let server = RedisServer::builder()
        .user(&user)
        .clock_offset(Skew::NONE)
        .start();
    let limiter = limiter(server.url_as("limiter", "secret"), "sliding_log").await;
    let id = held(&limiter, "ann", "1").await;
    assert!(limiter.renew(id, super::MINUTE).await.unwrap());
    // Slots that end too late are corrected, and those that have ended are dropped.
    server.set_clock_offset(Skew::Behind(Duration::from_secs(3600)));
    let first = held(&limiter, "ann", "1").await;
    assert!(
        limiter
            .settle(id, Settlement::Cost(3))
            .await
            .unwrap()
            .is_some()
    );
    server.set_clock_offset(Skew::NONE);
    let second = held(&limiter, "ann", "1").await;
    assert_eq!(limiter.settle(first, Settlement::RELEASE).await, Ok(None));
    assert!(
        limiter
            .settle(second, Settlement::RELEASE)
            .await
            .unwrap()
            .is_some()
    );
}

/// A request may wait for units and hold slots: one call takes the permit, the units and
/// the slots, and writes the record.
#[tokio::test]
async fn a_request_with_a_permit_to_wait_is_held_too() {
    let server = RedisServer::start();
    let store = store_at(server.url()).max_cluster_waits(1);
    let store = store.connect().await.unwrap();
    let rate = Limit::builder(Algorithm::TokenBucket, 1, Duration::from_secs(3600));
    let bands = [
        Band::new(
            "rate",
            rate.max_wait(2 * Duration::from_secs(3600))
                .build()
                .unwrap(),
        ),
        Band::new("slots", Limit::concurrency(3).build().unwrap()),
    ];
    let subject = Subject {
        rule: RuleNumber::NONE,
        bytes: b"somebody",
    };
    let checks = |id: u128| {
        let mut checks = Checks::new(Mode::Take);
        checks.push(subject, &bands, 1, Group::ENFORCED);
        checks.set_hold(HoldRequest::new(
            HoldId::from_bits(id),
            None,
            bands.iter().map(|_| None),
        ));
        checks
    };
    let mut permits = Vec::new();
    for (id, delays) in [(1, false), (2, true)] {
        let (verdicts, permit) = store.decide_with_permit(&checks(id)).await.unwrap();
        assert!(verdicts.iter().all(Verdict::passes));
        assert_eq!(verdicts[0].delay > Micros::ZERO, delays);
        assert_eq!(verdicts[1].remaining, 3 - id as u32);
        permits.push(permit);
    }
    // No permit is left, so it is denied and holds nothing.
    let (verdicts, _) = store.decide_with_permit(&checks(3)).await.unwrap();
    assert!(!verdicts[0].passes() && verdicts[1].remaining == 1);
    for (id, is_held) in [(1, true), (2, true), (3, false)] {
        let settled = store
            .settle(HoldId::from_bits(id), Settlement::AsReserved)
            .await;
        assert_eq!(settled.unwrap().is_some(), is_held);
    }
}

/// Returns the slots that are held, by the server's clock.
fn held_now(cli: &mut Cli, key: &str) -> u64 {
    const COUNT: &str = "local t = redis.call('TIME') \
        return redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', t[1] * 1000000 + t[2]), '+inf')";
    let count = cli.command(&["EVAL", COUNT, "1", key]);
    count.int().try_into().unwrap()
}

/// Two processes race for slots, and the connections of one break all the time, with its
/// holds never settled: the server never has more slots than there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_slots_are_held_than_there_are_while_a_client_keeps_dying() {
    let server = Arc::new(RedisServer::start());
    let proxy = FaultProxy::start(server.addr());
    let rules = || {
        rules(&format!(
            "rule_sets: {{ api: {{ on_error: deny, rules: [ {{ id: r, scope: per_user, hold: 1s, \
             algorithm: concurrency, bands: [ {{ capacity: {SLOTS} }} ] }} ] }} }}"
        ))
    };
    let steady = Bench::new(rules(), store_at(server.url()));
    let dying = Bench::new(
        rules(),
        store_at(proxy.url("redis")).deadline(Duration::from_millis(200)),
    );
    assert!(steady.check("ann").await.allowed());
    let key = server.cli().keys("*:h").remove(0);
    let is_over = Arc::new(AtomicBool::new(false));
    let (most, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let monitor = std::thread::spawn({
        let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
        let most = Arc::clone(&most);
        move || {
            let mut cli = server.cli();
            while !is_over.load(Ordering::Relaxed) {
                most.fetch_max(held_now(&mut cli, &key), Ordering::Relaxed);
            }
        }
    });
    let mut tasks = JoinSet::new();
    for number in 0..8_u64 {
        let is_dying = number % 2 == 1;
        let bench = if is_dying {
            dying.clone()
        } else {
            steady.clone()
        };
        let (taken, is_over) = (Arc::clone(&taken), Arc::clone(&is_over));
        tasks.spawn(async move {
            let mut by_this = 0;
            while !is_over.load(Ordering::Relaxed) {
                let Some(id) = bench.check("ann").await.hold() else {
                    tokio::task::yield_now().await;
                    continue;
                };
                by_this += 1;
                taken.fetch_add(1, Ordering::Relaxed);
                // A process that dies settles nothing.
                if !is_dying || by_this % 3 > 0 {
                    let _ = bench.limiter.settle(id, Settlement::RELEASE).await;
                }
            }
        });
    }
    let end = Instant::now() + Duration::from_secs(3);
    until_async("all slots are held, again and again", async || {
        tokio::time::sleep(Duration::from_millis(20)).await;
        proxy.reset_connections();
        let [most, taken] = [&most, &taken].map(|count| count.load(Ordering::Relaxed));
        Instant::now() > end && most >= SLOTS && taken > 2 * SLOTS
    })
    .await;
    is_over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    monitor.join().unwrap();
    assert_eq!(most.load(Ordering::Relaxed), SLOTS, "slots at once");
    wait_until("all to expire", || server.cli().dbsize() == 0);
}
