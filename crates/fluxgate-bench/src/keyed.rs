//! Limits for many keys, compared with governor's keyed limiter. Both read their clock on
//! each call.

use std::hint::black_box;
use std::num::NonZeroU32;

use fluxgate_core::{KeyedLimiter, MemoryStore, Quota};
use governor::{DefaultKeyedRateLimiter, RateLimiter};

use crate::report::{Better, Report, calls_per_second, in_turn};

/// A limit that allows nearly everything, as in normal operation.
const HIGH_LIMIT: u32 = 10_000_000;
/// A limit that denies nearly everything, as under attack.
const LOW_LIMIT: u32 = 100;

pub(crate) fn keys(count: usize) -> Vec<String> {
    let keys = 0..count;
    keys.map(|index| format!("api-limits:per-user:user-{index:08}"))
        .collect()
}

pub(crate) fn governor() -> DefaultKeyedRateLimiter<String> {
    keyed_governor(HIGH_LIMIT)
}

fn keyed_governor(per_minute: u32) -> DefaultKeyedRateLimiter<String> {
    let per_minute = NonZeroU32::new(per_minute).unwrap_or(NonZeroU32::MIN);
    RateLimiter::keyed(governor::Quota::per_minute(per_minute))
}

pub(crate) fn thousand(report: &mut Report) {
    run(report, "keyed-1k", 1_000, HIGH_LIMIT, 4_000_000);
    run(report, "keyed-1k-refused", 1_000, LOW_LIMIT, 4_000_000);
}

pub(crate) fn million(report: &mut Report) {
    run(report, "keyed-1m", 1_000_000, HIGH_LIMIT, 2_000_000);
    run(
        report,
        "keyed-1m-slow-refill",
        1_000_000,
        LOW_LIMIT,
        2_000_000,
    );
}

fn run(report: &mut Report, name: &str, count: usize, per_minute: u32, calls: u64) {
    let keys = keys(count);
    let store = MemoryStore::with_max_keys(count.max(1_000_000));
    let ours = KeyedLimiter::with_store(Quota::per_minute(per_minute), store);
    let theirs = keyed_governor(per_minute);
    for key in &keys {
        let _ = ours.check(key);
        let _ = theirs.check_key(key);
    }
    let pick = |random: u64| &keys[(random % count as u64) as usize];
    let figures = in_turn(
        5,
        || {
            calls_per_second(2, calls, |random| {
                let _ = black_box(ours.check(pick(random)));
            })
        },
        || {
            calls_per_second(2, calls, |random| {
                let _ = black_box(theirs.check_key(pick(random)));
            })
        },
    );
    report.line(
        name,
        figures,
        "governor keyed, 2 threads",
        "decisions/s",
        Better::More,
    );
}
