//! Decisions about ten different requests: in sets of 10 and of 10,000 rules, by path, and by
//! lists of values, networks and groups; and with named lists of 10 and of 100,000 values.

use std::fmt::Write;
use std::hint::black_box;
use std::net::IpAddr;

use fluxgate_core::{
    Limiter, MemoryStore, Quota, RequestContext, Rule, RuleSet, RuleSets, ValueMatch,
};

use crate::decision;
use crate::report::{Better, Report, in_turn, nanos_per_call};

const CALLS: u64 = 1_000_000;

pub(crate) fn run(report: &mut Report) {
    let yardstick = "the same among 10 rules (at least 0.5)";
    let measured = in_turn(5, measure(10_000), measure(10));
    report.line(
        "matching-10k-rules",
        measured,
        yardstick,
        "ns",
        Better::Less,
    );
    let measured = in_turn(5, measure_conditions(10_000), measure_conditions(10));
    report.line(
        "matching-10k-conditions",
        measured,
        yardstick,
        "ns",
        Better::Less,
    );
}

/// Measures decisions with deny lists of users and networks, which nine of ten requests are not
/// on.
pub(crate) fn run_lists(report: &mut Report) {
    let yardstick = "the same with lists of 10 values (at least 0.95)";
    let measured = in_turn(9, measure_lists(100_000), measure_lists(10));
    report.line("list-100k-values", measured, yardstick, "ns", Better::Less);
}

fn measure_lists(values: usize) -> impl FnMut() -> f64 {
    let limiter = Limiter::new(lists(values), MemoryStore::default());
    // The users and addresses are the same whatever the length of the lists.
    let requests: Vec<(String, IpAddr)> = (0..10)
        .map(|index| match index {
            0 => ("blocked-3".to_owned(), IpAddr::from([192, 0, 2, 7])),
            _ => (format!("user-{index}"), IpAddr::from([192, 0, 2, index])),
        })
        .collect();
    move || {
        let mut forbidden = 0;
        let nanos = nanos_per_call(CALLS, |call| {
            let (user, ip) = &requests[call as usize % requests.len()];
            let context = RequestContext::builder()
                .user(user.as_str())
                .method("GET")
                .path("/v1/items/42")
                .ip(*ip)
                .build();
            let decision = black_box(limiter.check_sync("bench", &context));
            forbidden += u64::from(!decision.allowed());
        });
        assert!(forbidden > 0, "one of ten users is on the list");
        nanos
    }
}

#[expect(clippy::unwrap_used, reason = "the rules are valid")]
fn lists(count: usize) -> RuleSets {
    let users = (0..count).map(|index| format!("blocked-{index}"));
    // Single addresses and /24 networks, as in published lists.
    let networks = (0..count).map(|index| match index % 10 {
        0 => format!("10.{}.{}.0/24", index / 256 % 256, index % 256),
        _ => format!(
            "{}.{}.{}.9",
            20 + index / 65_536,
            index / 256 % 256,
            index % 256
        ),
    });
    let limit = Rule::new("per-user")
        .per_user()
        .band(Quota::per_second(1_000_000_000));
    let rules = RuleSet::builder("bench")
        .list("users", users)
        .list("networks", networks)
        .rule(
            Rule::new("no-entry")
                .match_user(ValueMatch::in_list("users"))
                .deny(),
        )
        .rule(Rule::new("bad-network").match_ip_in("networks").deny())
        .rule(limit);
    RuleSets::from(rules.build().unwrap())
}

fn measure(rules: usize) -> impl FnMut() -> f64 {
    let limiter = Limiter::new(decision::rules(rules), MemoryStore::default());
    // Always ten different rules, spread over the whole set.
    let paths: Vec<String> = (0..10)
        .map(|index| format!("/service-{}/v1/items/42", index * rules / 10))
        .collect();
    move || {
        nanos_per_call(CALLS, |call| {
            let path = paths[call as usize % paths.len()].as_str();
            let context = RequestContext::builder()
                .user("user-1")
                .method("GET")
                .path(path)
                .build();
            let _ = black_box(limiter.check_sync("bench", &context));
        })
    }
}

/// Measures rules with lists of tenants, exceptions and networks, in groups of ten. Each
/// request matches one rule.
fn measure_conditions(rules: usize) -> impl FnMut() -> f64 {
    let limiter = Limiter::new(conditions(rules), MemoryStore::default());
    let requests: Vec<(String, IpAddr)> = (0..10)
        .map(|index| {
            let rule = index * rules / 10;
            (format!("tenant-{rule}"), address(rule))
        })
        .collect();
    move || {
        nanos_per_call(CALLS, |call| {
            let (tenant, ip) = &requests[call as usize % requests.len()];
            let context = RequestContext::builder()
                .user("user-1")
                .method("GET")
                .path("/v1/items/42")
                .ip(*ip)
                .attribute("tenant", tenant.as_str())
                .attribute("plan", "pro")
                .build();
            let decision = limiter.check_sync("bench", &context);
            assert_eq!(black_box(decision).rules().count(), 1);
        })
    }
}

/// Returns an address in the network of a rule.
fn address(rule: usize) -> IpAddr {
    IpAddr::from([10, (rule / 256) as u8, (rule % 256) as u8, 7])
}

#[expect(clippy::unwrap_used, reason = "the rules are valid")]
fn conditions(count: usize) -> RuleSets {
    let mut text = String::from("rule_sets:\n  bench:\n    rules:\n");
    for index in 0..count {
        let (high, low) = (index / 256, index % 256);
        let group = index / 10;
        let _ = write!(
            text,
            "      - id: rule-{index}
        group: group-{group}
        match:
          path: [\"/v1/**\"]
          attributes: {{ tenant: [tenant-{index}, trial-{index}], plan: {{ not: [free, none] }} }}
          ip: [\"10.{high}.{low}.0/24\", \"192.168.0.0/16\"]
          not_ip: [\"10.{high}.{low}.1\"]
        scope: per_user
        bands: [1000000/s, 10000000/m]
"
        );
    }
    RuleSets::from_yaml(&text).unwrap()
}
