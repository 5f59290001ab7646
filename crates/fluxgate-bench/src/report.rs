//! Prints figures, and measures calls.

use std::time::{Duration, Instant};

/// Prints one line per figure.
pub(crate) struct Report {
    json: bool,
}

/// Whether a higher or a lower figure is better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

impl Better {
    /// Returns a ratio above 1 if ours is better.
    pub(crate) fn ratio(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Self::More => ours / theirs,
            Self::Less => theirs / ours,
        }
    }
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Returns whether each figure is printed as an object, for programs.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints two figures in `unit` and their ratio.
    pub(crate) fn line(
        &mut self,
        bench: &str,
        (ours, theirs): (f64, f64),
        yardstick: &str,
        unit: &str,
        better: Better,
    ) {
        let ratio = better.ratio(ours, theirs);
        self.line_of((ours, theirs, ratio), bench, yardstick, unit);
    }

    /// Prints two figures and a given ratio.
    pub(crate) fn line_of(
        &mut self,
        (ours, theirs, ratio): (f64, f64, f64),
        bench: &str,
        yardstick: &str,
        unit: &str,
    ) {
        if self.json {
            println!(
                "{{\"bench\":\"{bench}\",\"ours\":{ours:.1},\"theirs\":{theirs:.1},\
                 \"yardstick\":\"{yardstick}\",\"unit\":\"{unit}\",\"ratio\":{ratio:.3}}}"
            );
        } else {
            println!(
                "{bench:<28} {ours:>14.1} {theirs:>14.1} {unit:<14} {ratio:>6.2}x  {yardstick}"
            );
        }
    }
}

/// Measures ours and theirs in turn. Returns the median of each.
pub(crate) fn in_turn(
    rounds: usize,
    mut ours: impl FnMut() -> f64,
    mut theirs: impl FnMut() -> f64,
) -> (f64, f64) {
    let mut all = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        all.0.push(ours());
        all.1.push(theirs());
    }
    (median(all.0), median(all.1))
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Returns nanoseconds per call on this thread.
pub(crate) fn nanos_per_call(calls: u64, mut call: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    for index in 0..calls {
        call(index);
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// Returns the calls per second of all threads together. Each thread makes `calls` calls.
pub(crate) fn calls_per_second<F>(threads: u64, calls: u64, call: F) -> f64
where
    F: Fn(u64) + Sync,
{
    let barrier = std::sync::Barrier::new(threads as usize);
    let longest = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, call) = (&barrier, &call);
                scope.spawn(move || {
                    let mut random = Random::new(thread + 1);
                    barrier.wait();
                    let start = Instant::now();
                    for _ in 0..calls {
                        call(random.next());
                    }
                    start.elapsed()
                })
            })
            .collect();
        let times = handles.into_iter().map(|handle| handle.join());
        times.map(|time| time.unwrap_or(Duration::MAX)).max()
    });
    (threads * calls) as f64 / longest.unwrap_or(Duration::MAX).as_secs_f64()
}

/// A deterministic generator of random numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
