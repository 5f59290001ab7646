//! Runs of load generators against several servers in turn.

use crate::report::{Better, Report, median};

/// Many short rounds, so that compared runs are close in time: the speed of the machine may
/// vary.
const ROUNDS: usize = 11;

/// The result of one run of a load generator.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) per_second: f64,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
}

/// The runs of one load, one for each round.
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    /// Reports, for each figure, both medians and the median of the per-round ratios.
    pub(crate) fn add_to(&self, report: &mut Report, name: &str, yardstick: &str, theirs: &Self) {
        let mut line = |suffix: &str, unit, better: Better, figure: fn(&Run) -> f64| {
            let medians = |runs: &Self| median(runs.0.iter().map(figure).collect());
            let rounds = self.0.iter().zip(&theirs.0);
            let ratios = rounds.map(|(ours, theirs)| better.ratio(figure(ours), figure(theirs)));
            let figures = (medians(self), medians(theirs), median(ratios.collect()));
            report.line_of(figures, &format!("{name}{suffix}"), yardstick, unit);
        };
        line("", "requests/s", Better::More, |run| run.per_second);
        line("-p50", "us", Better::Less, |run| run.p50_micros);
        line("-p99", "us", Better::Less, |run| run.p99_micros);
    }
}

/// Runs all loads in turn. Loads that are compared should be adjacent.
pub(crate) fn in_turn<const N: usize>(mut loads: [&mut dyn FnMut() -> Run; N]) -> [Runs; N] {
    let mut runs = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (load, runs) in loads.iter_mut().zip(&mut runs) {
            runs.push(load());
        }
    }
    runs.map(Runs)
}

/// Runs two loads in turn and reports each figure.
pub(crate) fn compare(
    report: &mut Report,
    name: &str,
    yardstick: &str,
    mut ours: impl FnMut() -> Run,
    mut theirs: impl FnMut() -> Run,
) {
    let [ours, theirs] = in_turn([&mut ours, &mut theirs]);
    ours.add_to(report, name, yardstick, &theirs);
}
