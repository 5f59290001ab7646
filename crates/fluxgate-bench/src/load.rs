//! Servers under load, ours and theirs in turn.

use crate::report::{Better, Report, median};

const ROUNDS: usize = 5;

/// What one run of a load generator tells.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) per_second: f64,
    /// What half of the requests took at most.
    pub(crate) p50_micros: f64,
    /// What 99 of a hundred took at most.
    pub(crate) p99_micros: f64,
}

/// Runs of ours and theirs in turn; a line for each figure, the median of each.
pub(crate) fn compare(
    report: &mut Report,
    name: &str,
    yardstick: &str,
    mut ours: impl FnMut() -> Run,
    mut theirs: impl FnMut() -> Run,
) {
    let mut all = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        all.0.push(ours());
        all.1.push(theirs());
    }
    let mut line = |suffix: &str, unit, better, of: fn(&Run) -> f64| {
        let of = |runs: &[Run]| median(runs.iter().map(of).collect());
        let figures = (of(&all.0), of(&all.1));
        report.line(&format!("{name}{suffix}"), figures, yardstick, unit, better);
    };
    line("", "requests/s", Better::More, |run| run.per_second);
    line("-p50", "us", Better::Less, |run| run.p50_micros);
    line("-p99", "us", Better::Less, |run| run.p99_micros);
}
