//! Several rules in several slots: all of them are charged, or none.

use std::collections::HashMap;

use fluxgate_core::{Outcome, RequestContext, RuleSets};
use fluxgate_testkit::RedisCluster;

use crate::support::{RECOVERY, SLACK, patient, rules, until_async, used, with_error_log};

const USER: u64 = 40;
/// A third of the requests are from one address, so it reaches its limit before all do.
const IP: u64 = 42;
const ALL: u64 = 150;
const SHADOW: u64 = 10;

fn all_three(algorithm: &str) -> RuleSets {
    let slow = match algorithm {
        "token_bucket" | "leaky_bucket" => ", refill: 1, period: 9d",
        _ => "",
    };
    let rule = |id: &str, scope: &str, capacity: u64, more: &str| {
        format!(
            "{{ id: {id}, scope: {scope}, algorithm: {algorithm}, {more} \
             bands: [ {{ capacity: {capacity}, window: 300d{slow} }} ] }}"
        )
    };
    let list = [
        rule("user", "per_user", USER, ""),
        rule("ip", "per_ip", IP, ""),
        rule("all", "global", ALL, ""),
        rule("with_error_log", "per_user", SHADOW, "mode: shadow,"),
    ];
    rules(&format!(
        "rule_sets: {{ api: {{ on_error: deny, rules: [ {} ] }} }}",
        list.join(", ")
    ))
}

#[derive(Debug, Default)]
struct Counts {
    users: HashMap<String, u64>,
    ips: HashMap<u8, u64>,
    all: u64,
    shadow_denied: HashMap<String, u64>,
    denied_by: HashMap<String, u64>,
}

async fn many_at_a_time(cluster: &RedisCluster, algorithm: &str) {
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = patient(cluster.urls()).near_cache(false);
        let store = store.key_prefix(algorithm).connect().await.unwrap();
        limiters.push(with_error_log(all_three(algorithm), store).0);
    }
    let mut tasks = Vec::new();
    for client in 0..32_usize {
        let limiter = limiters[client % 2].clone();
        tasks.push(tokio::spawn(async move {
            let mut decisions = Vec::new();
            for step in 0..20 {
                // Some users and addresses reach their limits, others do not.
                let name = format!("user-{}", (client + step) % 8);
                let ip = (client * 7 + step * 3) as u8 % 6 % 4;
                let context = RequestContext::builder().user(name.clone());
                let context = context.ip([10, 0, 0, ip]).build();
                let decision = limiter.check("api", &context).await;
                decisions.push((name, ip, decision));
            }
            decisions
        }));
    }
    let mut counts = Counts::default();
    for task in tasks {
        for (name, ip, decision) in task.await.unwrap() {
            match decision.outcome() {
                Outcome::Allowed | Outcome::ShadowDenied => {
                    *counts.users.entry(name.clone()).or_default() += 1;
                    *counts.ips.entry(ip).or_default() += 1;
                    counts.all += 1;
                }
                Outcome::Denied => {
                    for (rule, refused) in decision.rules() {
                        let by = counts.denied_by.entry(rule.id().to_string());
                        *by.or_default() += u64::from(refused);
                    }
                }
                outcome => panic!("{outcome:?}"),
            }
            if decision.outcome() == Outcome::ShadowDenied {
                *counts.shadow_denied.entry(name).or_default() += 1;
            }
        }
    }
    // The test must reach the limits that it tests.
    for rule in ["ip", "all"] {
        assert!(counts.denied_by[rule] > 0, "{counts:?}");
    }
    let limiter = &limiters[0];
    assert!(counts.all <= ALL);
    // After an undo a bucket is behind by the time that the charge stood:
    // milliseconds, but they make a fraction of a unit.
    let is_bucket = algorithm.ends_with("bucket");
    let is_charged = |used: u64, admitted: u64| {
        let most = admitted + u64::from(is_bucket);
        assert!(
            (admitted..=most).contains(&used),
            "{algorithm}: {used}, not {admitted}"
        );
    };
    is_charged(used(limiter, "all", &[]).await, counts.all);
    for (ip, admitted) in &counts.ips {
        assert!(*admitted <= IP);
        let identity = format!("10.0.0.{ip}");
        is_charged(used(limiter, "ip", &[&identity]).await, *admitted);
    }
    for (name, admitted) in &counts.users {
        assert!(*admitted <= USER);
        is_charged(used(limiter, "user", &[name]).await, *admitted);
        // Only admitted requests are charged.
        let with_error_log = used(limiter, "with_error_log", &[name]).await;
        assert_eq!(with_error_log, SHADOW.min(*admitted), "{algorithm} {name}");
        let denied = counts.shadow_denied.get(name).copied().unwrap_or(0);
        assert_eq!(denied, admitted.saturating_sub(SHADOW));
    }
    // Without load, the rest can be taken to the last unit.
    let context = RequestContext::builder().user("quiet").ip([10, 9, 9, 9]);
    let context = context.build();
    for _ in 0..(ALL - counts.all).min(USER) {
        let what = format!("{algorithm}: all that is left can be had");
        let took = until_async(&what, async || {
            let decision = limiter.check("api", &context).await;
            decision.allowed()
        });
        assert!(took.await < RECOVERY + SLACK);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_admitted_requests_are_charged_by_every_rule() {
    let cluster = RedisCluster::start(3);
    for algorithm in [
        "token_bucket",
        "leaky_bucket",
        "fixed_window",
        "sliding_window",
        "sliding_log",
    ] {
        many_at_a_time(&cluster, algorithm).await;
    }
}
