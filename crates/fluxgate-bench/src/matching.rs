//! The same decision among 10 and among 10,000 rules.

use std::hint::black_box;

use fluxgate_core::{Limiter, MemoryStore, RequestContext, ready};

use crate::decision;
use crate::report::{Better, Random, Report, in_turn, nanos_per_call};

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
    let paths: Vec<String> = (0..rules)
        .map(|index| format!("/service-{index}/v1/items/42"))
        .collect();
    let mut random = Random::new(7);
    move || {
        nanos_per_call(CALLS, |_| {
            let path = paths[(random.next() % paths.len() as u64) as usize].as_str();
            let context = RequestContext::builder()
                .user("user-1")
                .method("GET")
                .path(path)
                .build();
            let _ = black_box(ready(limiter.check("bench", &context)));
        })
    }
}
