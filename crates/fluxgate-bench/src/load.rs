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

impl Run {
    /// The figures in the middle, each by itself.
    fn median(runs: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(runs.iter().map(figure).collect());
        Self {
            per_second: of(|run| run.per_second),
            p50_micros: of(|run| run.p50_micros),
            p99_micros: of(|run| run.p99_micros),
        }
    }

    /// A line for each figure.
    pub(crate) fn tell(&self, report: &mut Report, name: &str, yardstick: &str, theirs: &Self) {
        let mut line = |suffix: &str, unit, better, of: fn(&Self) -> f64| {
            let figures = (of(self), of(theirs));
            report.line(&format!("{name}{suffix}"), figures, yardstick, unit, better);
        };
        line("", "requests/s", Better::More, |run| run.per_second);
        line("-p50", "us", Better::Less, |run| run.p50_micros);
        line("-p99", "us", Better::Less, |run| run.p99_micros);
    }
}

/// Runs of all of them in turn; of each the figures in the middle.
pub(crate) fn in_turn<const N: usize>(mut asked: [&mut dyn FnMut() -> Run; N]) -> [Run; N] {
    let mut runs = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (ask, runs) in asked.iter_mut().zip(&mut runs) {
            runs.push(ask());
        }
    }
    runs.map(|runs| Run::median(&runs))
}

/// Runs of ours and theirs in turn; a line for each figure.
pub(crate) fn compare(
    report: &mut Report,
    name: &str,
    yardstick: &str,
    mut ours: impl FnMut() -> Run,
    mut theirs: impl FnMut() -> Run,
) {
    let [ours, theirs] = in_turn([&mut ours, &mut theirs]);
    ours.tell(report, name, yardstick, &theirs);
}
