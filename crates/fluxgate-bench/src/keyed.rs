//! Limits for many keys, compared with governor's keyed limiter. Both read their clock on
//! each call.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use fluxgate_core::{Algorithm, Band, Limit, MemoryStore};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

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
    RateLimiter::keyed(Quota::per_minute(per_minute))
}

#[expect(clippy::unwrap_used, reason = "the numbers are in the domain")]
fn band(per_minute: u32) -> Band {
    let minute = Duration::from_secs(60);
    let limit = Limit::builder(Algorithm::TokenBucket, per_minute.into(), minute);
    Band::new("b0", limit.build().unwrap())
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
    let band = band(per_minute);
    let ours = MemoryStore::with_max_keys(count.max(1_000_000));
    let theirs = keyed_governor(per_minute);
    for key in &keys {
        ours.take(key, &band, 1);
        let _ = theirs.check_key(key);
    }
    let pick = |random: u64| &keys[(random % count as u64) as usize];
    let figures = in_turn(
        5,
        || {
            calls_per_second(2, calls, |random| {
                black_box(ours.take(pick(random), &band, 1));
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
