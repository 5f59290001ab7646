//! `fluxgate import`: configurations of other rate limiters become rules that decide alike.

use crate::support::{Dir, Run};

mod bucket4j;
mod envoy_ratelimit;
mod kong;
mod nginx;
mod openfluxgate;
mod rejected;

/// Runs the command on a file `source` with this text.
fn import(format: &str, text: &str) -> Run {
    let dir = Dir::new();
    dir.write("source", text);
    dir.run(&["import", format, "source"])
}

/// Returns the rules for a text, which must be valid, and the same each time.
#[track_caller]
pub(crate) fn rules(format: &str, text: &str) -> String {
    let run = import(format, text);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(import(format, text), run);
    let validated = Dir::with_rules(&run.stdout).run(&["validate", "rules.yaml"]);
    assert_eq!(
        validated.code,
        Some(0),
        "{}{}",
        run.stdout,
        validated.stderr
    );
    let lost = run.stdout.matches("# not carried over: ").count();
    let end = match lost {
        0 => " rule(s)\n".to_owned(),
        _ => format!("not carried over: {lost}, see the comments\n"),
    };
    assert!(run.stderr.ends_with(&end), "{}", run.stderr);
    run.stdout
}

/// Asserts that a rule file has these lines, in this order.
#[track_caller]
fn assert_lines(rules: &str, expected: &[&str]) {
    let mut lines = rules.lines().map(str::trim);
    for line in expected {
        assert!(lines.any(|it| it == *line), "no `{line}` in\n{rules}");
    }
}

/// Decides requests, given as JSON without the braces, at the same instant. Returns a letter for
/// each decision.
#[track_caller]
fn at_once(rules: &str, requests: &[&str]) -> String {
    let lines = requests.iter().map(|it| format!("{{\"t\":0,{it}}}\n"));
    decide(rules, &lines.collect::<String>())
}

#[track_caller]
fn decide(rules: &str, lines: &str) -> String {
    Dir::with_rules(rules).simulate(lines, &[]).outcomes()
}

#[test]
fn the_output_may_be_a_file_but_not_the_source() {
    let dir = Dir::new();
    let text = "domain: d\ndescriptors: [ { key: k, rate_limit: { unit: hour, requests_per_unit: 1 } } ]\n";
    dir.write("source", text);
    let run = dir.run(&[
        "import",
        "envoy-ratelimit",
        "source",
        "--output",
        "rules.yaml",
    ]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""));
    assert_eq!(run.stderr, "source: 1 rule(s)\n");
    assert_eq!(dir.read("rules.yaml"), rules("envoy-ratelimit", text));
    let run = dir.run(&[
        "import",
        "envoy-ratelimit",
        "source",
        "--output",
        "./source",
    ]);
    assert_eq!(run.code, Some(74));
    assert_eq!(
        run.stderr,
        "./source: would be overwritten; name another output\n"
    );
    assert_eq!(dir.read("source"), text);
}

#[test]
fn a_file_without_anything_to_carry_over_is_refused() {
    let text = "domain: d\ndescriptors:\n  - { key: k, value: 'a*', rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    let run = import("envoy-ratelimit", text);
    assert_eq!((run.code, run.stdout.as_str()), (Some(78), ""));
    assert_eq!(
        run.stderr,
        "source: no rule could be carried over\n\
         source:3: not carried over: the prefix `a*` of `k`, and all below it\n"
    );
}
