//! What one instance does with its leases.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use fluxgate_core::{Algorithm, Lease, Limiter, Outcome, Percent, Quota, Rule, RuleSet, RuleSets};
use fluxgate_redis::RedisStore;
use fluxgate_testkit::{FaultProxy, RedisServer, ReplyFault, Stopwatch, WAIT_TIMEOUT};
use tokio::time::{Instant, sleep};

use super::{calls, leased};
use crate::support::{rules, store_at, user};

/// A window that does not end while a test runs.
const LONG: &str = "{ capacity: 1000, window: 300d }";

fn instance(server: &RedisServer, rules: &RuleSets) -> Limiter<RedisStore> {
    Limiter::new(rules.clone(), store_at(server.url()).build().unwrap())
}

/// Sends requests of one user. Returns how many were admitted.
async fn take(limiter: &Limiter<RedisStore>, times: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..times {
        admitted += usize::from(limiter.check("api", &user("ann")).await.allowed());
    }
    admitted
}

/// Sends requests until units are on lease here. Returns how many were admitted.
async fn take_until_leased(limiter: &Limiter<RedisStore>) -> usize {
    let mut admitted = 0;
    while limiter.store().lease_counts().on_lease == 0 {
        admitted += take(limiter, 1).await;
    }
    admitted
}

/// Takes until nothing is left, waiting out refusals.
async fn exhaust(limiter: &Limiter<RedisStore>, wanted: usize) -> usize {
    let until = Instant::now() + WAIT_TIMEOUT;
    let mut admitted = 0;
    while admitted < wanted && Instant::now() < until {
        match take(limiter, 1).await {
            0 => sleep(Duration::from_millis(5)).await,
            _ => admitted += 1,
        }
    }
    admitted
}

#[tokio::test]
async fn only_a_key_that_is_used_often_gets_a_lease() {
    let server = RedisServer::start();
    let limiter = instance(
        &server,
        &leased("share: 20%, for: 10s", "fixed_window", LONG),
    );
    assert_eq!(take(&limiter, 2).await, 2);
    assert_eq!(limiter.store().lease_counts().requests, 0);
    assert_eq!(take(&limiter, 50).await, 50);
    let counts = limiter.store().lease_counts();
    assert!(counts.requests > 0 && counts.allowed > 30, "{counts:?}");
}

#[tokio::test]
async fn a_local_decision_allocates_nothing_whether_its_rule_notifies_or_not() {
    for bands in [LONG.to_owned(), format!("{LONG} ], notify: [ 80%, 100% ")] {
        let server = RedisServer::start();
        let limiter = instance(
            &server,
            &leased("share: 50%, for: 10s", "fixed_window", &bands),
        );
        assert_eq!(take(&limiter, 40).await, 40);
        let before = limiter.store().lease_counts().allowed;
        let context = user("ann");
        let allocated = allocation_counter::measure(|| {
            for _ in 0..10 {
                let decision = pin!(limiter.check("api", &context));
                let decision = decision.poll(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(decision, Poll::Ready(decision) if decision.allowed()));
            }
        });
        assert_eq!(limiter.store().lease_counts().allowed, before + 10);
        assert_eq!(allocated.count_total, 0, "{bands}");
    }
}

#[tokio::test]
async fn most_decisions_of_a_hot_key_take_no_call() {
    let server = RedisServer::start();
    let band = "{ capacity: 100000, window: 300d }";
    let limiter = instance(
        &server,
        &leased("share: 20%, for: 1s", "fixed_window", band),
    );
    assert_eq!(take(&limiter, 20_000).await, 20_000);
    let counts = limiter.store().lease_counts();
    let calls = calls(&server);
    assert!(calls * 50 <= 20_000, "{calls} calls, {counts:?}");
}

#[tokio::test]
async fn units_return_when_a_key_goes_idle() {
    let server = RedisServer::start();
    // It goes idle long before it ends, even if the machine is late.
    let rules = leased("share: 50%, for: 10s", "fixed_window", LONG);
    let (first, second) = (instance(&server, &rules), instance(&server, &rules));
    let rest = 1000 - take_until_leased(&first).await;
    // Nobody has spent them, so all are there for the other one.
    assert_eq!(exhaust(&second, rest).await, rest);
    assert_eq!(take(&second, 5).await, 0);
    let counts = first.store().lease_counts();
    assert_eq!((counts.on_lease, counts.expired), (0, 0), "{counts:?}");
    assert!(counts.returned > 0);
}

#[tokio::test]
async fn units_return_at_the_end() {
    let server = RedisServer::start();
    let rules = leased("share: 50%, for: 1m", "fixed_window", LONG);
    let (first, second) = (instance(&server, &rules), instance(&server, &rules));
    let rest = 1000 - take_until_leased(&first).await;
    first.store().return_leases().await;
    assert_eq!(first.store().lease_counts().on_lease, 0);
    // It continues without leases.
    assert_eq!(take(&first, 10).await, 10);
    assert_eq!(first.store().lease_counts().on_lease, 0);
    second.store().return_leases().await;
    assert_eq!(take(&second, 1000).await, rest - 10);
}

#[tokio::test]
async fn units_of_an_instance_that_is_gone_are_out_until_its_lease_ends() {
    let server = RedisServer::start();
    let band = "{ capacity: 100, window: 1s, refill: 1, period: 1d }";
    let rules = leased("share: 50%, for: 10s", "token_bucket", band);
    let (first, second) = (instance(&server, &rules), instance(&server, &rules));
    let admitted = take(&first, 20).await;
    let held = first.store().lease_counts().on_lease as usize;
    assert!(admitted == 20 && held > 0);
    drop(first);
    // The shared part is 50 units, and those on lease are charged to it.
    assert_eq!(exhaust(&second, 30 - held).await, 30 - held);
    assert_eq!(take(&second, 5).await, 0);
}

#[tokio::test]
async fn a_request_needs_units_of_all_its_bands() {
    let server = RedisServer::start();
    let bands =
        "{ id: small, capacity: 20, window: 300d }, { id: large, capacity: 1000, window: 300d }";
    let limiter = instance(
        &server,
        &leased("share: 50%, for: 10s", "fixed_window", bands),
    );
    assert_eq!(take(&limiter, 100).await, 20);
    let states = limiter.state("api", "r", &["ann"]).await.unwrap();
    assert_eq!(states[0].remaining, 0);
    // All that was not admitted is still there, or on lease here.
    let on_lease = limiter.store().lease_counts().on_lease;
    assert_eq!(states[1].remaining + on_lease, 980);
}

#[tokio::test]
async fn rules_that_wait_or_shape_or_hold_or_shadow_take_no_lease() {
    let server = RedisServer::start();
    let lease = "lease: { share: 50%, for: 10s }";
    for rule in [
        "bands: [ { capacity: 100, window: 1s } ], on_exceed: wait, max_wait: 1s",
        "algorithm: leaky_bucket, shape: true, bands: [ { capacity: 100, window: 1s } ]",
        "mode: shadow, bands: [ { capacity: 100, window: 1s } ]",
        "algorithm: sliding_window, bands: [ { capacity: 100, window: 1s } ]",
        "algorithm: sliding_log, bands: [ { capacity: 100, window: 1s } ]",
    ] {
        let rules = rules(&format!(
            "rule_sets: {{ api: {{ rules: [ {{ id: r, scope: per_user, {rule}, {lease} }} ] }} }}"
        ));
        let limiter = instance(&server, &rules);
        take(&limiter, 30).await;
        let counts = limiter.store().lease_counts();
        assert_eq!((counts.requests, counts.allowed), (0, 0), "{rule}");
    }
}

#[tokio::test]
async fn a_request_with_a_rule_that_does_not_lease_is_decided_by_the_store() {
    let server = RedisServer::start();
    let rules = rules(
        "rule_sets: { api: { rules: [ \
         { id: a, scope: per_user, lease: { share: 50%, for: 10s }, bands: [ { capacity: 100, window: 1d } ] }, \
         { id: b, scope: per_user, bands: [ { capacity: 50, window: 1d, refill: 1 } ] } ] } }",
    );
    let limiter = instance(&server, &rules);
    assert_eq!(take(&limiter, 100).await, 50);
    assert_eq!(limiter.store().lease_counts().requests, 0);
}

#[tokio::test]
async fn what_remains_is_the_shared_rest_and_what_is_on_lease_here() {
    let server = RedisServer::start();
    let limiter = instance(
        &server,
        &leased("share: 20%, for: 1m", "fixed_window", LONG),
    );
    for admitted in 1..=300_u64 {
        let decision = limiter.check("api", &user("ann")).await;
        assert!(decision.allowed());
        assert_eq!(decision.remaining(), Some(1000 - admitted));
        assert_eq!(decision.limit(), Some(1000));
    }
    assert!(limiter.store().lease_counts().allowed > 200);
}

#[tokio::test]
async fn a_refund_ends_a_refusal() {
    let server = RedisServer::start();
    let limiter = instance(
        &server,
        &leased(
            "share: 50%, for: 1m",
            "fixed_window",
            "{ capacity: 20, window: 300d }",
        ),
    );
    assert_eq!(take(&limiter, 60).await, 20);
    assert!(limiter.store().lease_counts().denied > 10);
    limiter.refund("api", "r", &["ann"], 5).await.unwrap();
    assert_eq!(take(&limiter, 20).await, 5);
    limiter.reset("api", "r", &["ann"]).await.unwrap();
    assert_eq!(take(&limiter, 60).await, 20);
}

#[tokio::test]
async fn after_a_refusal_units_are_soon_requested_again() {
    let server = RedisServer::start();
    let rules = leased(
        "share: 50%, for: 10s",
        "fixed_window",
        "{ capacity: 20, window: 300d }",
    );
    let (first, second) = (instance(&server, &rules), instance(&server, &rules));
    assert_eq!(take(&first, 60).await, 20);
    second.refund("api", "r", &["ann"], 5).await.unwrap();
    // A fiftieth of the lease, which is 200 ms.
    let watch = Stopwatch::start();
    assert_eq!(exhaust(&first, 5).await, 5);
    let took = watch.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn a_lease_follows_a_change_of_its_rule() {
    let server = RedisServer::start();
    let old = leased("share: 50%, for: 1s", "fixed_window", LONG);
    let limiter = instance(&server, &old);
    assert_eq!(take(&limiter, 40).await, 40);
    let band = "{ capacity: 60, window: 300d }";
    let rules = leased("share: 10%, for: 1s", "fixed_window", band);
    limiter.replace_rules(rules).await.unwrap();
    assert_eq!(exhaust(&limiter, 20).await, 20);
    assert_eq!(take(&limiter, 5).await, 0);
}

#[tokio::test]
async fn a_cost_above_the_shared_part_of_a_bucket_never_passes() {
    let server = RedisServer::start();
    let limiter = instance(
        &server,
        &leased(
            "share: 20%, for: 1s",
            "token_bucket",
            "{ capacity: 100, window: 300d }",
        ),
    );
    let consume = |cost| limiter.consume("api", "r", &["ann"], Some(cost));
    assert!(!consume(81).await.unwrap().allowed());
    assert!(consume(80).await.unwrap().allowed());
}

/// Byte for byte, as far as the server can tell.
#[tokio::test]
async fn a_rule_without_a_lease_sends_what_it_sent_before() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let band = "bands: [ { capacity: 1000, window: 1d } ]";
    let rules = rules(&format!(
        "rule_sets: {{ api: {{ rules: [ {{ id: r, scope: per_user, {band} }} ] }} }}"
    ));
    let store = store_at(proxy.url("redis")).build().unwrap();
    let limiter = Limiter::new(rules, store);
    take(&limiter, 3).await;
    let before = (proxy.bytes_up(), proxy.bytes_down());
    take(&limiter, 10).await;
    // EVALSHA with a key of 29 bytes, 12 bytes of a head and 44 of a check; the
    // reply has 13 bytes of a head, and the letter, the digits of the bucket and a semicolon.
    assert_eq!(proxy.bytes_up() - before.0, 10 * 170);
    assert_eq!(proxy.bytes_down() - before.1, 10 * 40);
    assert!(server.cli().keys("*lease*").is_empty());
}

/// More units are due, but the keeper has not run yet.
#[tokio::test]
async fn units_of_a_lease_that_is_low_return_at_the_end() {
    let server = RedisServer::start();
    let limiter = instance(
        &server,
        &leased("share: 50%, for: 1m", "fixed_window", LONG),
    );
    assert_eq!(take(&limiter, 10).await, 10);
    let on_lease = || limiter.store().lease_counts().on_lease;
    assert!(on_lease() > 8);
    while on_lease() > 1 {
        assert_eq!(take(&limiter, 1).await, 1);
    }
    limiter.store().return_leases().await;
    let counts = limiter.store().lease_counts();
    assert_eq!((counts.on_lease, counts.returned), (0, 1), "{counts:?}");
}

#[tokio::test]
async fn what_is_on_lease_is_known_for_all_instances_and_charges_nothing() {
    let server = RedisServer::start();
    let bands =
        "{ id: few, capacity: 10, window: 300d }, { id: many, capacity: 1000, window: 300d }";
    let (exact, leased_bands) = (
        leased("share: 1%, for: 1m", "fixed_window", bands),
        leased("share: 50%, for: 1m", "fixed_window", bands),
    );
    // A call for the state, and one for each band that leases its units.
    for (rules, expected) in [(exact, 1), (leased_bands, 3)] {
        let limiter = instance(&server, &rules);
        let state = || limiter.state("api", "r", &["ann"]);
        // The first may have to load the script.
        state().await.unwrap();
        let before = calls(&server);
        let states = state().await.unwrap();
        assert_eq!((states[0].on_lease, states[1].on_lease), (0, 0));
        assert_eq!(calls(&server) - before, expected);
    }
    assert!(server.cli().keys("*").is_empty());

    let rules = leased("share: 50%, for: 1m", "fixed_window", LONG);
    let (first, second) = (instance(&server, &rules), instance(&server, &rules));
    let admitted = take_until_leased(&first).await as u64;
    let here = first.store().lease_counts().on_lease;
    for _ in 0..3 {
        let states = second.state("api", "r", &["ann"]).await.unwrap();
        assert_eq!(states[0].on_lease, here);
        assert_eq!(states[0].remaining, 1000 - admitted - here);
    }
    assert_eq!(second.store().lease_counts().requests, 0);
}

/// An instance that dies now costs what it has on lease.
#[tokio::test]
async fn at_most_twice_what_was_used_within_a_lease_is_on_lease() {
    let server = RedisServer::start();
    let limiter = instance(
        &server,
        &leased("share: 50%, for: 1m", "fixed_window", LONG),
    );
    for used in 1..=400_u64 {
        assert_eq!(take(&limiter, 1).await, 1);
        let on_lease = limiter.store().lease_counts().on_lease;
        assert!(on_lease <= 2 * used, "{on_lease} after {used}");
    }
}

/// A lease request reaches the server, and its reply is lost.
#[tokio::test]
async fn requests_whose_replies_are_lost_take_no_more_units_again_and_again() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let rules = leased("share: 50%, for: 1m", "fixed_window", LONG);
    let store = store_at(proxy.url("redis")).build().unwrap();
    let limiter = Limiter::new(rules.clone(), store);
    assert_eq!(take(&limiter, 2).await, 2);
    for _ in 0..4 {
        proxy.fault_reply_to("EVALSHA", ReplyFault::SwallowAndClose);
        assert_eq!(take(&limiter, 1).await, 0);
    }
    proxy.heal();
    let other = instance(&server, &rules);
    let states = other.state("api", "r", &["ann"]).await.unwrap();
    // Three requests made it hot, and three more may have been charged.
    assert!(states[0].on_lease <= 6, "{states:?}");
}

/// Units on lease were charged before the reset, and can be spent or returned after it.
#[tokio::test]
async fn a_reset_adds_the_units_on_lease_once() {
    let server = RedisServer::start();
    let rules = leased("share: 50%, for: 1m", "fixed_window", LONG);
    let (first, second) = (instance(&server, &rules), instance(&server, &rules));
    assert_eq!(take(&first, 100).await, 100);
    let held = first.store().lease_counts().on_lease as usize;
    assert!(held > 0);
    for _ in 0..2 {
        second.reset("api", "r", &["ann"]).await.unwrap();
    }
    let mut admitted = exhaust(&second, 1000).await;
    admitted += take(&first, 1000).await;
    admitted += take(&second, 100).await;
    assert!(
        (1000..=1000 + held).contains(&admitted),
        "{admitted}, {held}"
    );
}

#[tokio::test]
async fn units_on_lease_count_against_a_smaller_limit() {
    let server = RedisServer::start();
    let old = leased("share: 50%, for: 1m", "fixed_window", LONG);
    let (first, second) = (instance(&server, &old), instance(&server, &old));
    assert_eq!(take(&first, 100).await, 100);
    let held = first.store().lease_counts().on_lease as usize;
    assert!(held > 0);
    let band = "{ capacity: 400, window: 300d }";
    let new = leased("share: 1%, for: 1m", "fixed_window", band);
    second.replace_rules(new.clone()).await.unwrap();
    let admitted = exhaust(&second, 300 - held).await;
    assert_eq!(admitted, 300 - held);
    assert_eq!(take(&second, 10).await, 0);
    // The instance that changes later does not spend them under the new rule.
    first.replace_rules(new).await.unwrap();
    assert_eq!(take(&first, 10).await, 0);
}

/// A request is matched before units on lease are looked at.
#[tokio::test]
async fn an_entry_of_a_deny_list_takes_effect_at_once_for_keys_on_lease() {
    let server = RedisServer::start();
    let with = |blocked: &str| {
        rules(&format!(
            "rule_sets: {{ api: {{ lists: {{ blocked: [{blocked}] }}, rules: [ \
             {{ id: no, action: deny, match: {{ user: {{ in: blocked }} }} }}, \
             {{ id: r, scope: per_user, algorithm: fixed_window, \
             lease: {{ share: 50%, for: 1m }}, bands: [ {LONG} ] }} ] }} }}"
        ))
    };
    let limiter = instance(&server, &with("eve"));
    take_until_leased(&limiter).await;
    let before = limiter.store().lease_counts();
    limiter.replace_rules(with("eve, ann")).await.unwrap();
    let decision = limiter.check("api", &user("ann")).await;
    assert_eq!(decision.outcome(), Outcome::Forbidden);
    assert_eq!(limiter.store().lease_counts(), before);
    // They are not lost, either.
    limiter.replace_rules(with("eve")).await.unwrap();
    assert_eq!(take(&limiter, 1).await, 1);
    assert_eq!(limiter.store().lease_counts().allowed, before.allowed + 1);
}

/// Units that were granted for the bands of an override are not spent after its end.
#[tokio::test]
async fn an_override_that_ends_takes_its_units_on_lease_with_it() {
    // Usually two seconds are enough to lease before it ends.
    for seconds in [2, 10, 30] {
        if override_ends(Duration::from_secs(seconds)).await {
            return;
        }
    }
    panic!("it takes longer than half a minute to lease");
}

/// Returns whether units were on lease before the override ended.
#[expect(
    clippy::disallowed_methods,
    reason = "the end of an override is an instant"
)]
async fn override_ends(after: Duration) -> bool {
    let server = RedisServer::start();
    let until = SystemTime::now() + after;
    let long = Duration::from_secs(300 * 86_400);
    let window = |capacity| Quota::per(capacity, long).algorithm(Algorithm::FixedWindow);
    let rule = Rule::new("r").per_user().band(window(5));
    let rule = rule.override_until(["ann"], [window(1000)], until);
    let rule = rule.lease(Lease::new(Percent::new(50), Duration::from_secs(60)));
    let rules = RuleSet::builder("api").rule(rule).build().unwrap();
    let limiter = instance(&server, &rules.into());
    take_until_leased(&limiter).await;
    let mut admitted = take(&limiter, 10).await;
    if SystemTime::now() > until {
        return false;
    }
    loop {
        let decision = limiter.check("api", &user("ann")).await;
        match decision.limit() {
            Some(1000) => admitted += usize::from(decision.allowed()),
            limit => {
                assert_eq!(limit, Some(5));
                assert!(!decision.allowed());
                break;
            }
        }
    }
    assert!(admitted >= 10);
    assert_eq!(take(&limiter, 50).await, 0);
    true
}
