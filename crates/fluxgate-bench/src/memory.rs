//! How much memory keys take, and what a flood of them does.

use std::fs;
use std::time::Duration;

use fluxgate_core::memory::Retention;
use fluxgate_core::{Algorithm, Band, Limit, ManualClock, MemoryStore, Timestamp};

use crate::keyed;
use crate::report::{Better, Report};

const MILLION: usize = 1_000_000;

#[expect(clippy::unwrap_used, reason = "the numbers are in the domain")]
fn hourly() -> Limit {
    let limit = Limit::builder(Algorithm::TokenBucket, 10, Duration::from_secs(3600));
    limit.build().unwrap()
}

/// Bytes that this process has in memory.
fn resident() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    (pages.unwrap_or(0) * 4096) as f64
}

pub(crate) fn bytes_per_key(report: &mut Report) {
    let keys = keyed::keys(MILLION);
    let band = Band::new("b0", hourly());
    let before = resident();
    let ours = MemoryStore::default();
    for key in &keys {
        ours.take(key, &band, 1);
    }
    let ours_bytes = (resident() - before) / ours.len() as f64;
    assert_eq!(ours.len(), MILLION);
    let figures = (ours_bytes, 64.0);
    report.line(
        "memory",
        figures,
        "64 bytes a key allowed",
        "bytes/key",
        Better::Less,
    );

    let before = resident();
    let theirs = keyed::governor();
    for key in &keys {
        let _ = theirs.check_key(key);
    }
    let theirs_bytes = (resident() - before) / theirs.len() as f64;
    let figures = (ours_bytes, theirs_bytes);
    report.line(
        "memory-governor",
        figures,
        "governor keyed",
        "bytes/key",
        Better::Less,
    );
}

/// Five million keys that are used once, and a thousand that are used up.
#[expect(clippy::unwrap_used, reason = "the numbers are in the domain")]
pub(crate) fn flood(report: &mut Report) {
    const USED_UP: usize = 1_000;
    let band = Band::new("b0", hourly());
    let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000).unwrap());
    let before = resident();
    let store = MemoryStore::new(clock, MILLION, Retention::UntilFull);
    let victim = |index: usize| format!("victim-{index}");
    for index in 0..USED_UP {
        store.take(&victim(index), &band, 9);
    }
    for index in 0..5 * MILLION {
        store.take(&format!("flood-{index}"), &band, 1);
    }
    assert!(store.len() <= MILLION, "{} keys", store.len());
    let bytes = (resident() - before) / MILLION as f64;
    // With nine of ten used, one that was forgotten would pass with two.
    let kept = (0..USED_UP).filter(|index| !store.take(&victim(*index), &band, 2).passes);
    let kept = kept.count() as f64;
    report.line(
        "flood-memory",
        (bytes, 64.0),
        "64 bytes a key allowed",
        "bytes/key",
        Better::Less,
    );
    report.line(
        "flood-kept",
        (kept, USED_UP as f64),
        "limits used up before",
        "limits",
        Better::More,
    );
}
