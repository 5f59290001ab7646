//! Configurations of other rate limiters become rules that decide alike.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot continue has failed; the helpers are test code too"
)]

mod bucket4j;
mod envoy_ratelimit;
mod kong;
mod nginx;
mod openfluxgate;
mod properties;
mod rejected;
mod spring_cloud_gateway;

use fluxgate_core::RuleSets;
use fluxgate_import::{Format, ImportError, Imported, Output};
use fluxgate_simulate::{Options, Simulation};

fn import(format: Format, text: &str) -> Result<Imported, ImportError> {
    fluxgate_import::import(format, "source", text, Output::Rules)
}

/// Returns the rules for a text, which must be valid, and the same each time.
#[track_caller]
fn rules(format: Format, text: &str) -> String {
    let imported = import(format, text).unwrap();
    assert_eq!(import(format, text).unwrap().text, imported.text);
    RuleSets::from_yaml(&imported.text).unwrap();
    let lost = imported.text.matches("# not carried over: ").count();
    assert_eq!(imported.lost, lost, "{}", imported.text);
    let rules = imported.text.matches("\n      - id: ").count();
    assert_eq!(imported.rules, rules, "{}", imported.text);
    imported.text
}

/// Asserts that a rule file has these lines or conditions of `match`, in this order.
#[track_caller]
fn assert_lines(rules: &str, expected: &[&str]) {
    let mut rest = rules;
    for part in expected {
        let found = rest.match_indices(part).find_map(|(start, _)| {
            let (before, after) = (&rest[..start], &rest[start + part.len()..]);
            let is_whole = before.ends_with([' ', '\n']) && after.starts_with([' ', ',', '\n']);
            is_whole.then_some(after)
        });
        rest = found.unwrap_or_else(|| panic!("no `{part}` in\n{rules}"));
    }
}

/// Decides requests, given as JSON without the braces, at the same instant. Returns a letter for
/// each decision.
#[track_caller]
fn at_once(rules: &str, requests: &[&str]) -> String {
    let lines = requests.iter().map(|it| format!("{{\"t\":0,{it}}}\n"));
    decide(rules, &lines.collect::<String>())
}

/// Decides recorded requests. Returns `a` for each that is allowed, `d` for each that is denied.
#[track_caller]
fn decide(rules: &str, lines: &str) -> String {
    let decisions = simulate(rules, lines);
    let is_allowed = |line: &str| line.contains("\"allowed\":true");
    let letters = decisions
        .lines()
        .map(|line| if is_allowed(line) { 'a' } else { 'd' });
    letters.collect()
}

/// Decides recorded requests. Returns a decision a line.
#[track_caller]
fn simulate(rules: &str, lines: &str) -> String {
    let rules = RuleSets::from_yaml(rules).unwrap();
    let mut decisions = Vec::new();
    let mut simulation = Simulation::new(rules, Options::default());
    let run = simulation.run(lines.as_bytes(), &mut decisions, |_| {});
    run.unwrap();
    assert_eq!(simulation.warnings(), [""; 0]);
    String::from_utf8(decisions).unwrap()
}
