//! Helpers of all tests: runs of simulations, and expected output.

use fluxgate_core::RuleSets;
use fluxgate_simulate::{Options, Simulation, SimulationError};

/// A token bucket of two units per second for each user.
pub(crate) const TWO_A_SECOND: &str = "
rule_sets:
  api:
    rules:
      - { id: r, scope: per_user, bands: [ { capacity: 2, window: 1s } ] }
";

/// Returns a rule file with the set `api` of one rule `r`, which has these fields.
pub(crate) fn one_rule(fields: &str) -> String {
    format!("rule_sets:\n  api:\n    rules:\n      - {{ id: r, {fields} }}\n")
}

/// Replays the input through the rules of a file.
#[track_caller]
pub(crate) fn simulate(rules: &str, input: impl AsRef<[u8]>) -> Run {
    simulate_with(rules, input, Options::default())
}

/// Replays the input through the rules of a file, with options.
#[track_caller]
pub(crate) fn simulate_with(rules: &str, input: impl AsRef<[u8]>, options: Options) -> Run {
    let rules = RuleSets::from_yaml(rules).unwrap();
    Run::new(Simulation::new(rules, options), input)
}

/// A simulation, its decisions, and how it ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) simulation: Simulation,
    pub(crate) decisions: String,
    pub(crate) result: Result<(), SimulationError>,
}

impl Run {
    pub(crate) fn new(mut simulation: Simulation, input: impl AsRef<[u8]>) -> Self {
        let mut decisions = Vec::new();
        let result = simulation.run(input.as_ref(), &mut decisions, |_| {});
        Self {
            simulation,
            decisions: String::from_utf8(decisions).unwrap(),
            result,
        }
    }

    /// Asserts that the run came to the end without warnings, and returns the decisions.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<&str> {
        assert!(self.result.is_ok(), "{:?}", self.result);
        assert_eq!(self.simulation.warnings(), [""; 0]);
        self.decisions.lines().collect()
    }

    /// Returns a letter for each decision: `a` if allowed, `d` if denied.
    #[track_caller]
    pub(crate) fn outcomes(&self) -> String {
        let is_allowed = |line: &str| line.contains("\"allowed\":true");
        let lines = self.lines().into_iter();
        lines
            .map(|line| if is_allowed(line) { 'a' } else { 'd' })
            .collect()
    }

    /// Asserts that the run ended early, and returns the reason.
    #[track_caller]
    pub(crate) fn error(&self) -> String {
        self.result.as_ref().unwrap_err().to_string()
    }

    /// Returns the tables of rules and identities.
    #[track_caller]
    pub(crate) fn summary(&self) -> String {
        assert!(self.result.is_ok(), "{:?}", self.result);
        self.simulation.summary().unwrap().to_string()
    }

    /// Returns the tables of what changes against the old rules.
    #[track_caller]
    pub(crate) fn changes(&self) -> String {
        assert!(self.result.is_ok(), "{:?}", self.result);
        self.simulation.changes().unwrap().to_string()
    }
}

/// The reported band of an expected line: its name, its limit and the remaining units.
pub(crate) type Band<'a> = (&'a str, u64, u64);

/// Returns the line of an allowed request.
pub(crate) fn allowed(t: u64, band: Band<'_>, reset: u64) -> String {
    delayed(t, band, reset, 0)
}

/// Returns the line of a delayed request.
pub(crate) fn delayed(
    t: u64,
    (band, limit, remaining): Band<'_>,
    reset: u64,
    delay: u64,
) -> String {
    let (rule, band) = band.split_once('/').unwrap();
    format!(
        r#"{{"t":{t},"allowed":true,"outcome":"allowed","rule":"{rule}","band":"{band}","limit":{limit},"remaining":{remaining},"retry_after_us":0,"reset_after_us":{reset},"delay_us":{delay},"violated":[]}}"#
    )
}

/// Returns the line of a denied request. `retry` is `None` if it can never pass.
pub(crate) fn denied(
    t: u64,
    (band, limit, remaining): Band<'_>,
    retry: impl Into<Option<u64>>,
    reset: u64,
    violated: &[&str],
) -> String {
    let (outcome, retry) = match retry.into() {
        Some(retry) => ("denied", retry.to_string()),
        None => ("never", "null".to_owned()),
    };
    let (rule, band) = band.split_once('/').unwrap();
    let violated: Vec<_> = violated.iter().map(|band| format!("\"{band}\"")).collect();
    let violated = violated.join(",");
    format!(
        r#"{{"t":{t},"allowed":false,"outcome":"{outcome}","rule":"{rule}","band":"{band}","limit":{limit},"remaining":{remaining},"retry_after_us":{retry},"reset_after_us":{reset},"delay_us":0,"violated":[{violated}]}}"#
    )
}

/// Returns the line of a request for which no rule is reported.
pub(crate) fn unreported(t: u64, outcome: &str, violated: &str) -> String {
    format!(
        r#"{{"t":{t},"allowed":true,"outcome":"{outcome}","rule":null,"band":null,"limit":null,"remaining":null,"retry_after_us":0,"reset_after_us":0,"delay_us":0,"violated":[{violated}]}}"#
    )
}
