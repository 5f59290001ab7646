//! Decisions by ten rules, in sets of 10 and of 10,000 rules.

use std::hint::black_box;

use fluxgate_core::{Limiter, MemoryStore, RequestContext};

use crate::decision;
use crate::report::{Better, Report, in_turn, nanos_per_call};

const CALLS: u64 = 1_000_000;

pub(crate) fn run(report: &mut Report) {
    let (many, few) = in_turn(5, measure(10_000), measure(10));
    let yardstick = "the same among 10 rules (0.5 is allowed)";
    report.line(
        "matching-10k-rules",
        (many, few),
        yardstick,
        "ns",
        Better::Less,
    );
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
