//! Servers under load, ours and theirs in turn.

use crate::report::{Better, Report, median};

/// Many short rounds: where the machine is not always as fast, runs that follow each
/// other closely still meet the same machine.
const ROUNDS: usize = 11;

/// What one run of a load generator tells.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) per_second: f64,
    /// What half of the requests took at most.
    pub(crate) p50_micros: f64,
    /// What 99 of a hundred took at most.
    pub(crate) p99_micros: f64,
}

/// One run in each round.
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    /// A line for each figure: those in the middle, and of the ratios in each round
    /// the one in the middle.
    pub(crate) fn tell(&self, report: &mut Report, name: &str, yardstick: &str, theirs: &Self) {
        let mut line = |suffix: &str, unit, better: Better, figure: fn(&Run) -> f64| {
            let middle = |runs: &Self| median(runs.0.iter().map(figure).collect());
            let rounds = self.0.iter().zip(&theirs.0);
            let ratios = rounds.map(|(ours, theirs)| better.ratio(figure(ours), figure(theirs)));
            let figures = (middle(self), middle(theirs), median(ratios.collect()));
            report.line_of(figures, &format!("{name}{suffix}"), yardstick, unit);
        };
        line("", "requests/s", Better::More, |run| run.per_second);
        line("-p50", "us", Better::Less, |run| run.p50_micros);
        line("-p99", "us", Better::Less, |run| run.p99_micros);
    }
}

/// Runs of all of them in turn. Those that are compared should stand side by side.
pub(crate) fn in_turn<const N: usize>(mut asked: [&mut dyn FnMut() -> Run; N]) -> [Runs; N] {
    let mut runs = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (ask, runs) in asked.iter_mut().zip(&mut runs) {
            runs.push(ask());
        }
    }
    runs.map(Runs)
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
