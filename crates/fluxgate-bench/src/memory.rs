//! The memory per key, and the effect of a flood of keys. Each is measured in a process of
//! its own, so that other benchmarks have no influence.

use std::{env, fs, process};

use fluxgate_core::memory::Retention;
use fluxgate_core::{KeyedLimiter, ManualClock, MemoryStore, Quota, Timestamp};

use crate::keyed;
use crate::report::{Better, Report};

const MILLION: usize = 1_000_000;
const USED_UP: usize = 1_000;
const HOURLY: Quota = Quota::per_hour(10);

/// The argument that makes this program run one measurement and print the result.
pub(crate) const MEASURE: &str = "--measure";

pub(crate) fn bytes_per_key(report: &mut Report) {
    let [ours] = measured("ours");
    let [theirs] = measured("governor");
    let allowed = (ours, 64.0);
    report.line(
        "memory",
        allowed,
        "64 bytes a key allowed",
        "bytes/key",
        Better::Less,
    );
    report.line(
        "memory-governor",
        (ours, theirs),
        "governor keyed",
        "bytes/key",
        Better::Less,
    );
}

pub(crate) fn flood(report: &mut Report) {
    let [bytes, kept] = measured("flood");
    let allowed = (bytes, 64.0);
    let before = (kept, USED_UP as f64);
    report.line(
        "flood-memory",
        allowed,
        "64 bytes a key allowed",
        "bytes/key",
        Better::Less,
    );
    report.line(
        "flood-kept",
        before,
        "limits used up before the flood",
        "limits",
        Better::More,
    );
}

/// Runs a measurement in a process of its own.
#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
fn measured<const N: usize>(what: &str) -> [f64; N] {
    let mut command = process::Command::new(env::current_exe().unwrap());
    let output = command.args([MEASURE, what]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
    numbers.try_into().unwrap()
}

/// Runs one measurement and prints the result.
pub(crate) fn measure(what: &str) {
    match what {
        "ours" => measure_ours(),
        "governor" => measure_governor(),
        _ => measure_flood(),
    }
}

fn measure_ours() {
    let keys = keyed::keys(MILLION);
    let before = resident();
    let limiter = KeyedLimiter::new(HOURLY);
    for key in &keys {
        let _ = limiter.check(key);
    }
    assert_eq!(limiter.store().len(), MILLION);
    println!("{}", (resident() - before) / MILLION as f64);
}

fn measure_governor() {
    let keys = keyed::keys(MILLION);
    let before = resident();
    let limiter = keyed::governor();
    for key in &keys {
        let _ = limiter.check_key(key);
    }
    println!("{}", (resident() - before) / limiter.len() as f64);
}

/// Measures five million keys that are used once, and a thousand that are nearly used up.
#[expect(clippy::unwrap_used, reason = "the number is in the domain")]
fn measure_flood() {
    let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000).unwrap());
    let before = resident();
    let store = MemoryStore::new(clock, MILLION, Retention::UntilFull);
    let limiter = KeyedLimiter::with_store(HOURLY, store);
    let victim = |index: usize| format!("victim-{index}");
    for index in 0..USED_UP {
        let _ = limiter.check_n(&victim(index), 9);
    }
    for index in 0..5 * MILLION {
        let _ = limiter.check(&format!("flood-{index}"));
    }
    let count = limiter.store().len();
    assert!(count <= MILLION, "{count} keys");
    let bytes = (resident() - before) / MILLION as f64;
    // Nine of ten units are used, so a cost of two passes only if the key was evicted.
    let kept = (0..USED_UP).filter(|index| limiter.check_n(&victim(*index), 2).is_err());
    println!("{bytes} {}", kept.count());
}

/// Returns the resident memory of this process in bytes.
fn resident() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    (pages.unwrap_or(0) * 4096) as f64
}
