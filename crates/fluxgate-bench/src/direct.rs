//! One limit without keys, compared with governor's direct limiter. Both read their clock
//! on each call.

use std::hint::black_box;
use std::num::NonZeroU32;

use fluxgate_core::{DirectLimiter, Quota};
use governor::RateLimiter;

use crate::report::{Better, Report, calls_per_second, in_turn};

/// A limit that allows everything: more than any number of threads can use.
const HIGH_LIMIT: u32 = 1_000_000_000;
/// A limit that denies nearly everything.
const LOW_LIMIT: u32 = 100;
const ROUNDS: usize = 9;
const CALLS: u64 = 4_000_000;

pub(crate) fn one_thread(report: &mut Report) {
    run(report, "direct-1-thread", 1, HIGH_LIMIT);
    run(report, "direct-1-thread-refused", 1, LOW_LIMIT);
}

pub(crate) fn two_threads(report: &mut Report) {
    run(report, "direct-2-threads", 2, HIGH_LIMIT);
    run(report, "direct-2-threads-refused", 2, LOW_LIMIT);
}

fn run(report: &mut Report, name: &str, threads: u64, per_second: u32) {
    let ours = DirectLimiter::new(Quota::per_second(per_second));
    let per_second = NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN);
    let theirs = RateLimiter::direct(governor::Quota::per_second(per_second));
    let figures = in_turn(
        ROUNDS,
        || {
            calls_per_second(threads, CALLS, |_| {
                let _ = black_box(ours.check());
            })
        },
        || {
            calls_per_second(threads, CALLS, |_| {
                let _ = black_box(theirs.check());
            })
        },
    );
    report.line(
        name,
        figures,
        "governor direct",
        "decisions/s",
        Better::More,
    );
}
