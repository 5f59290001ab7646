//! `spec/proofs`: claims that Z3 proves, and mutants that it refutes.

use std::process::Command;

use super::is_long;
use crate::support::{Run, project_file, python};

fn run_python(arguments: &[&str]) -> Run {
    let mut command = Command::new(python());
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(project_file("spec/proofs"));
    command.args(arguments).output().unwrap().into()
}

#[test]
fn all_claims_are_proved_and_all_mutants_refuted() {
    if !is_long() {
        return;
    }
    let mutants = [("bucket.py", 8), ("reservations.py", 3), ("leases.py", 13)];
    for (file, mutants) in mutants {
        let run = run_python(&[file]);
        let report = (run.code, run.stderr.as_str());
        assert_eq!(report, (Some(0), ""), "{file}: {}", run.stdout);
        let lines = run.stdout.lines();
        let refuted = lines.filter(|line| line.starts_with("ok     mutant"));
        assert_eq!(refuted.count(), mutants, "{file}: {}", run.stdout);
    }
}

#[test]
fn a_wrong_claim_and_a_right_mutant_fail() {
    if !is_long() {
        return;
    }
    for claim in [
        "proved('wrong', [x >= 0], x > 0)",
        "refuted('right', [x > 0], x >= 0)",
    ] {
        let program =
            format!("from z3 import Int; from prover import *; x = Int('x'); {claim}; end()");
        let run = run_python(&["-c", &program]);
        let report = (run.code, run.stderr.as_str());
        assert_eq!(report, (Some(1), "1 failed\n"), "{claim}");
    }
}
