//! A complete decision: context, matching among 100 rules, two bands, memory store.

use std::fmt::Write;
use std::hint::black_box;

use fluxgate_core::{Limiter, MemoryStore, RequestContext, RuleSets};

use crate::keyed;
use crate::report::{Better, Report, in_turn, nanos_per_call};

const KEYS: usize = 1_000;
const CALLS: u64 = 1_000_000;

pub(crate) fn run(report: &mut Report) {
    let limiter = Limiter::new(rules(100), MemoryStore::default());
    let users: Vec<String> = (0..KEYS).map(|index| format!("user-{index:08}")).collect();
    let theirs = keyed::governor();
    let keys = keyed::keys(KEYS);
    let (ours, theirs) = in_turn(
        5,
        || {
            nanos_per_call(CALLS, |call| {
                let context = RequestContext::builder()
                    .user(users[call as usize % KEYS].as_str())
                    .method("GET")
                    .path("/service-57/v1/items/42")
                    .build();
                let decision = limiter.check_sync("bench", &context);
                assert!(black_box(decision).allowed());
            })
        },
        || {
            nanos_per_call(CALLS, |call| {
                let _ = black_box(theirs.check_key(&keys[call as usize % KEYS]));
            })
        },
    );
    let yardstick = "six governor checks over 1,000 keys";
    report.line(
        "decision",
        (ours, 6.0 * theirs),
        yardstick,
        "ns",
        Better::Less,
    );
}

/// Returns `count` rules with different paths and two bands each.
#[expect(clippy::unwrap_used, reason = "the rules are valid")]
pub(crate) fn rules(count: usize) -> RuleSets {
    let mut text = String::from("rule_sets:\n  bench:\n    rules:\n");
    for index in 0..count {
        let _ = write!(
            text,
            "      - id: rule-{index}
        match: {{ path: [\"/service-{index}/**\"], methods: [GET, POST] }}
        scope: per_user
        bands:
          - {{ id: burst, capacity: 1000000, window: 1s }}
          - {{ id: sustained, capacity: 10000000, window: 1m }}
"
        );
    }
    RuleSets::from_yaml(&text).unwrap()
}
