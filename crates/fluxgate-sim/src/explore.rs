//! Runs plans of many seeds, and reports the first that breaks a rule.

use std::fmt;
use std::time::Duration;

use crate::minimise::minimise;
use crate::plan::Plan;
use crate::redis::Interpreter;
pub use crate::redis::ScriptPatch;
use crate::world;
pub use crate::world::Report;

/// The most plans that are tried to make a failure smaller.
const MINIMISING_RUNS: usize = 2_000;

/// What many runs did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Plans.
    pub runs: u64,
    /// Requests that were decided.
    pub decisions: u64,
    /// Those that instances decided by themselves.
    pub local: u64,
    /// Those that were allowed.
    pub allowed: u64,
    /// Those that the store failed to decide.
    pub failed: u64,
    /// Scripts that servers ran.
    pub calls: u64,
    /// Virtual time, over all instances, in microseconds.
    pub instance_time: u64,
}

impl Totals {
    fn add(&mut self, plan: &Plan, report: &Report) {
        self.runs += 1;
        self.decisions += report.decisions;
        self.local += report.local;
        self.allowed += report.allowed;
        self.failed += report.failed;
        self.calls += report.calls;
        self.instance_time += plan.end * plan.instances as u64;
    }
}

/// A plan that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the plan.
    pub seed: u64,
    /// The plan, as small as it could be made.
    pub plan: Plan,
    /// What the small plan did.
    pub report: Report,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} breaks a rule", self.seed)?;
        writeln!(f, "the plan, made smaller:\n{}", self.plan)?;
        for line in &self.report.trace {
            writeln!(f, "{line}")?;
        }
        match &self.report.violation {
            Some(violation) => writeln!(f, "at {} µs: {}", violation.at, violation.message),
            None => writeln!(f, "the small plan breaks none"),
        }
    }
}

/// Runs plans.
#[derive(Debug)]
pub struct Explorer {
    interpreter: Interpreter,
    /// What the runs did so far.
    pub totals: Totals,
}

impl Explorer {
    /// Creates one that runs the scripts as they are.
    pub fn new() -> Self {
        Self::with_patches(&[])
    }

    /// Creates one that changes the scripts: it should find a failure.
    pub fn with_patches(patches: &[ScriptPatch]) -> Self {
        Self {
            interpreter: Interpreter::new(patches),
            totals: Totals::default(),
        }
    }

    /// Runs one plan.
    pub fn run(&mut self, plan: &Plan) -> Report {
        let report = world::run(plan, &mut self.interpreter, false);
        self.totals.add(plan, &report);
        report
    }

    /// Runs one plan and keeps its trace.
    pub fn trace(&mut self, plan: &Plan) -> Report {
        world::run(plan, &mut self.interpreter, true)
    }

    /// Runs the plan of a seed. Returns what failed, with a small plan and its trace.
    pub fn try_seed(&mut self, seed: u64) -> Option<Failure> {
        self.try_plan(seed, &Plan::from_seed(seed))
    }

    /// Runs the plans of seeds from `first` on, until one fails or the time is over. Returns the
    /// first seed that was not tried, or what failed.
    #[expect(
        clippy::disallowed_methods,
        reason = "real time bounds the search, and nothing in a run"
    )]
    pub fn explore(&mut self, first: u64, time: Duration) -> Result<u64, Box<Failure>> {
        let begin = std::time::Instant::now();
        let mut seed = first;
        while begin.elapsed() < time {
            if let Some(failure) = self.try_seed(seed) {
                return Err(Box::new(failure));
            }
            seed += 1;
        }
        Ok(seed)
    }

    /// Runs a plan. Returns what failed, with a small plan and its trace.
    pub fn try_plan(&mut self, seed: u64, plan: &Plan) -> Option<Failure> {
        self.run(plan).violation?;
        let interpreter = &mut self.interpreter;
        let small = minimise(plan, MINIMISING_RUNS, |plan| {
            world::run(plan, interpreter, false).violation.is_some()
        });
        let report = world::run(&small, interpreter, true);
        Some(Failure {
            seed,
            plan: small,
            report,
        })
    }

    /// Returns whether some script had the text that each patch replaces.
    pub fn patches_apply(&self) -> bool {
        self.interpreter.patches_apply()
    }
}

impl Default for Explorer {
    fn default() -> Self {
        Self::new()
    }
}
