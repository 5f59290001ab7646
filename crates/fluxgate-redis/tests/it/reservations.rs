//! Reservations that any process cancels by id, once; and rules that charge always on a
//! cluster.

use std::time::Duration;

use fluxgate_core::store::Micros;
use fluxgate_core::{
    HoldId, Limiter, ManualClock, RequestContext, RuleSets, Settlement, Store, Timestamp,
};
use fluxgate_redis::RedisStore;
use fluxgate_testkit::{FaultProxy, RedisCluster, RedisServer, ReplyFault};

use crate::support::{patient, rules, store_at, until_async};

/// Three rules, in three slots of a cluster. The first one lets requests wait.
fn three_rules() -> RuleSets {
    rules(
        "
rule_sets:
  api:
    on_error: deny
    rules:
      - { id: queue, scope: per_user, on_exceed: wait, max_wait: 1h, bands: [ { capacity: 5, window: 500s } ] }
      - { id: window, scope: per_ip, algorithm: fixed_window, bands: [ { capacity: 100, window: 300d } ] }
      - { id: month, scope: global, algorithm: fixed_window, bands: [ { capacity: 100, calendar: month } ] }
",
    )
}

fn context(cost: u64) -> RequestContext<'static> {
    let context = RequestContext::builder().user("ann").ip([10, 0, 0, 1]);
    context.cost(cost).build()
}

async fn left(limiter: &Limiter<RedisStore>) -> [u64; 2] {
    let of = async |rule: &str, identity: &[&str]| {
        limiter.state("api", rule, identity).await.unwrap()[0].remaining
    };
    [of("window", &["10.0.0.1"]).await, of("month", &[]).await]
}

/// Uses up the queue, reserves some units and keeps the reservation.
async fn reserve(limiter: &Limiter<RedisStore>, cost: u64) -> HoldId {
    let mut decision = limiter.check("api", &context(cost)).await;
    assert!(decision.allowed() && decision.delay_micros() > Micros::ZERO);
    limiter
        .keep_reservation(&mut decision, &context(cost))
        .await
        .unwrap();
    decision.reservation().unwrap()
}

async fn is_cancelled_once(limiter: &Limiter<RedisStore>, other: &RedisStore) {
    assert!(limiter.check("api", &context(5)).await.allowed());
    let before = limiter.peek("api", &context(1)).await.delay();
    let id = reserve(limiter, 2).await;
    assert_eq!(left(limiter).await, [93, 93]);
    assert_eq!(other.cancel_reservation(id).await, Ok(true));
    for _ in 0..9 {
        assert_eq!(other.cancel_reservation(id).await, Ok(false));
    }
    assert_eq!(left(limiter).await, [95, 95]);
    let after = limiter.peek("api", &context(1)).await.delay();
    assert!(after <= before, "the place is free: {after:?} {before:?}");
    assert_eq!(other.cancel_reservation(HoldId::random()).await, Ok(false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_process_cancels_a_reservation_once() {
    let server = RedisServer::start();
    let store = store_at(server.url()).connect().await.unwrap();
    // It knows none of the rules.
    let other = store_at(server.url()).connect().await.unwrap();
    is_cancelled_once(&Limiter::new(three_rules(), store), &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_any_process_cancels_a_reservation_once() {
    let cluster = RedisCluster::start(3);
    let store = patient(cluster.urls()).connect().await.unwrap();
    let other = patient(cluster.urls()).connect().await.unwrap();
    is_cancelled_once(&Limiter::new(three_rules(), store), &other).await;
}

/// It was taken before the reply was lost, so nothing returns, not even once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_whose_reply_is_lost_returns_nothing_twice() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let store = store_at(proxy.url("redis"));
    let limiter = Limiter::new(three_rules(), store.connect().await.unwrap());
    assert!(limiter.check("api", &context(5)).await.allowed());
    let id = reserve(&limiter, 2).await;
    // The script is there already.
    let unknown = limiter.cancel_reservation(HoldId::random()).await;
    assert_eq!(unknown, Ok(false));
    proxy.fault_reply_to("EVALSHA", ReplyFault::SwallowAndClose);
    assert!(limiter.cancel_reservation(id).await.is_err());
    until_async("it is connected", async || {
        limiter.store().ping().await.is_ok()
    })
    .await;
    assert_eq!(limiter.cancel_reservation(id).await, Ok(false));
    assert_eq!(left(&limiter).await, [93, 93]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_delayed_decision_has_a_record_and_it_expires() {
    let server = RedisServer::start();
    let store = store_at(server.url()).connect().await.unwrap();
    let limiter = Limiter::new(three_rules(), store);
    let mut at_once = limiter.check("api", &context(5)).await;
    limiter
        .keep_reservation(&mut at_once, &context(5))
        .await
        .unwrap();
    assert_eq!(at_once.reservation(), None);
    let keys = || server.cli().keys("*:reservation:*");
    assert!(keys().is_empty());
    reserve(&limiter, 1).await;
    let keys = keys();
    assert_eq!(keys.len(), 1);
    let ttl = server.cli().command(&["PTTL", &keys[0]]).int();
    assert!((90_000..=101_000).contains(&ttl), "{ttl}");
}

/// The rule that is charged always is in another hash slot than those that deny, whichever of
/// them decides first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_a_charge_in_any_case_stays_whichever_slot_denies() {
    let cluster = RedisCluster::start(3);
    for user in ["ann", "bob", "cid", "dan"] {
        let rules = rules(
            "
rule_sets:
  api:
    on_error: deny
    rules:
      - { id: strict, scope: per_user, bands: [ { capacity: 2, window: 300d } ] }
      - { id: late, scope: per_user, charge: always, algorithm: fixed_window, bands: [ { capacity: 10, window: 300d } ] }
      - { id: wide, scope: per_user, algorithm: fixed_window, bands: [ { capacity: 100, window: 300d } ] }
",
        );
        let store = patient(cluster.urls()).connect().await.unwrap();
        let limiter = Limiter::new(rules, store);
        let check = async |cost| {
            let context = RequestContext::builder().user(user).cost(cost).build();
            limiter.check("api", &context).await
        };
        let left = async || {
            let mut left = Vec::new();
            for rule in ["strict", "late", "wide"] {
                let state = limiter.state("api", rule, &[user]).await.unwrap();
                left.push(state[0].remaining);
            }
            left
        };
        assert!(check(1).await.allowed());
        assert_eq!(left().await, [1, 9, 99], "{user}");
        for late in [6, 3, 0] {
            // Denied by the strict rule: each time the hash slots decide in another order.
            let denied = check(3).await;
            let violated: Vec<_> = denied.violated().map(|it| it.to_string()).collect();
            assert_eq!(violated[0], "strict/b0", "{user}");
            assert_eq!(left().await, [1, late, 99], "{user}");
        }
        // Denied by itself: nothing of the others is charged.
        let denied = check(1).await;
        let violated: Vec<_> = denied.violated().map(|it| it.to_string()).collect();
        assert_eq!(violated, ["late/b0"], "{user}");
        assert_eq!(denied.remaining(), Some(0));
        assert_eq!(left().await, [1, 0, 99], "{user}");
        let owes = check(0).await;
        assert!(!owes.allowed(), "{user}: it is above its limit");
    }
}

/// A rule that has no room for its charge leaves what another has charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_for_which_there_is_no_room_erases_nothing() {
    let rule = |rate: &str| {
        rules(&format!(
            "rule_sets: {{ api: {{ on_error: deny, rules: [ \
             {{ id: late, scope: per_user, charge: always, bands: [ {rate} ] }} ] }} }}"
        ))
    };
    let server = RedisServer::start();
    let clock = ManualClock::new(Timestamp::from_micros(START).unwrap());
    let store = patient([server.url()]).injected_clock(clock);
    let limiter = Limiter::new(rule("1000/1000s"), store.connect().await.unwrap());
    assert!(limiter.check("api", &context(990)).await.allowed());
    for _ in 0..3 {
        limiter.replace_rules(rule("1/1s")).await.unwrap();
        let denied = limiter.check("api", &context(1)).await;
        assert_eq!(denied.retry_after(), Some(Duration::from_secs(990)));
        limiter.replace_rules(rule("1000/1000s")).await.unwrap();
        let state = limiter.state("api", "late", &["ann"]).await.unwrap();
        assert_eq!(state[0].remaining, 10);
    }
}

/// The request waits for 200 s, and its hold lives for one.
async fn is_cancelled_after_its_hold(urls: Vec<String>, clear: impl Fn()) {
    let clock = ManualClock::new(Timestamp::from_micros(START).unwrap());
    let store = patient(urls).injected_clock(clock.clone());
    let limiter = Limiter::new(three_rules(), store.connect().await.unwrap());
    for (waited, is_known) in [(100, true), (200, false)] {
        clear();
        clock.set(Timestamp::from_micros(START).unwrap());
        assert!(limiter.check("api", &context(5)).await.allowed());
        let held = RequestContext::builder().user("ann").ip([10, 0, 0, 1]);
        let held = held.cost(2).hold(Duration::from_secs(1)).build();
        let mut decision = limiter.check("api", &held).await;
        assert_eq!(decision.delay(), Duration::from_secs(200));
        let kept = limiter.keep_reservation(&mut decision, &held).await;
        kept.unwrap();
        clock.advance(Duration::from_secs(waited));
        let (id, hold) = (decision.reservation().unwrap(), decision.hold().unwrap());
        let settled = limiter.settle(hold, Settlement::RELEASE).await;
        assert_eq!(settled, Ok(None), "the hold has expired");
        assert_eq!(left(&limiter).await, [93, 93]);
        assert_eq!(limiter.cancel_reservation(id).await, Ok(is_known));
        let returned = if is_known { [95, 95] } else { [93, 93] };
        assert_eq!(left(&limiter).await, returned);
        assert_eq!(limiter.cancel_reservation(id).await, Ok(false));
    }
}

const START: u64 = 20_000 * 86_400_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_longer_than_its_hold_lives_is_cancelled_all_the_same() {
    let server = RedisServer::start();
    is_cancelled_after_its_hold(vec![server.url()], || {
        server.cli().command(&["FLUSHALL"]).expect_ok();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_a_request_that_waits_longer_than_its_hold_lives_is_cancelled() {
    let cluster = RedisCluster::start(3);
    is_cancelled_after_its_hold(cluster.urls(), || {
        for node in cluster.nodes() {
            node.cli().command(&["FLUSHALL", "SYNC"]).expect_ok();
        }
    })
    .await;
}

/// The record of a hold lives as long as the request waits, by the server's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_of_a_hold_outlives_the_wait() {
    let server = RedisServer::start();
    let store = store_at(server.url()).connect().await.unwrap();
    let limiter = Limiter::new(three_rules(), store);
    assert!(limiter.check("api", &context(5)).await.allowed());
    let held = RequestContext::builder().user("ann").ip([10, 0, 0, 1]);
    let held = held.cost(2).hold(Duration::from_secs(1)).build();
    let decision = limiter.check("api", &held).await;
    assert!(!decision.delay().is_zero());
    let ttl = || {
        let keys = server.cli().keys("*:hold2:*");
        assert_eq!(keys.len(), 1, "{keys:?}");
        server.cli().command(&["PTTL", &keys[0]]).int()
    };
    assert!((150_000..=201_000).contains(&ttl()), "{}", ttl());
    let renewed = limiter.renew(decision.hold().unwrap(), Duration::from_secs(1));
    assert_eq!(renewed.await, Ok(true));
    // The script does not know how long it still waits: for at most an hour.
    assert!((150_000..=3_601_000).contains(&ttl()), "{}", ttl());
}

const LATE: &str = "
rule_sets:
  api:
    on_error: deny
    rules:
      - { id: strict, scope: per_user, bands: [ { capacity: 2, window: 300d } ] }
      - { id: late, scope: per_user, charge: always, algorithm: ALGORITHM, bands: [ { capacity: 10, window: 300d } ] }
";

/// The strict rule denies it, so only the other one would charge it.
async fn shows_the_charge(urls: Vec<String>) {
    for (algorithm, user) in [("fixed_window", "ann"), ("sliding_log", "bob")] {
        let store = patient(urls.clone()).connect().await.unwrap();
        let limiter = Limiter::new(rules(&LATE.replace("ALGORITHM", algorithm)), store);
        let request = |cost| RequestContext::builder().user(user).cost(cost).build();
        assert!(limiter.check("api", &request(1)).await.allowed());
        for (cost, left) in [(3, 6), (9, 0)] {
            let explained = limiter.explain("api", &request(cost)).await.unwrap();
            let after = &explained.rules[1].bands[0].after;
            assert_eq!(after.remaining, left, "{algorithm} {cost}");
        }
        let state = limiter.state("api", "late", &[user]).await.unwrap();
        assert_eq!(state[0].remaining, 9, "{algorithm}: nothing was charged");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explanation_shows_the_state_after_a_charge_in_any_case() {
    let server = RedisServer::start();
    shows_the_charge(vec![server.url()]).await;
    let cluster = RedisCluster::start(3);
    shows_the_charge(cluster.urls()).await;
}

/// A part of a hold whose units are all charged always leaves no record if the request is
/// denied elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_a_denied_request_leaves_no_record_of_a_hold() {
    let cluster = RedisCluster::start(3);
    for user in ["ann", "bob", "cid", "dan"] {
        let store = patient(cluster.urls()).connect().await.unwrap();
        let rules = rules(&LATE.replace("ALGORITHM", "fixed_window"));
        let limiter = Limiter::new(rules, store);
        let held = |cost| {
            let context = RequestContext::builder().user(user).cost(cost);
            context.hold(Duration::from_secs(3_600)).build()
        };
        assert!(!limiter.check("api", &held(3)).await.allowed());
        until_async("the record to be gone", async || {
            let nodes = cluster.nodes().iter();
            nodes
                .map(|node| node.cli().keys("*hold*").len())
                .sum::<usize>()
                == 0
        })
        .await;
        assert_eq!(
            limiter.state("api", "late", &[user]).await.unwrap()[0].remaining,
            7
        );
    }
}
