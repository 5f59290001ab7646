//! `spec/tla`: models that `tla-checker` explores to the end, and mutants of them that it refutes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::is_long;
use crate::support::{Run, fetched, project_file};

/// More states than any model has, so that each is explored to the end.
const MAX_STATES: &str = "20000000";

/// Checks a module with a configuration.
fn check(module: &str, config: &Path) -> Run {
    let mut command = Command::new("nice");
    command.arg(fetched("FLUXGATE_TLA", "tla/bin/tla"));
    command.arg(format!("{module}.tla"));
    command.arg("--config").arg(config);
    command.args(["--max-states", MAX_STATES, "--max-depth", MAX_STATES]);
    command.current_dir(project_file("spec/tla"));
    command.output().unwrap().into()
}

/// Returns the files in `spec/tla` with this extension, in order.
fn files(extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(project_file("spec/tla")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|of| of == extension))
        .collect();
    files.sort();
    files
}

fn stem(path: &Path) -> &str {
    path.file_stem().unwrap().to_str().unwrap()
}

/// A line such as `\* MUTANT A <- B, C <- D breaks INVARIANT with FILE.cfg`.
struct Mutant {
    module: String,
    replacements: Vec<String>,
    breaks: String,
    config: PathBuf,
}

fn mutants() -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for file in files("tla") {
        let Some(_) = stem(&file).strip_suffix("Mutants") else {
            continue;
        };
        for line in fs::read_to_string(&file).unwrap().lines() {
            let Some(line) = line.strip_prefix("\\* MUTANT ") else {
                continue;
            };
            let (replacements, rest) = line.split_once(" breaks ").unwrap();
            let (breaks, config) = rest.split_once(" with ").unwrap();
            mutants.push(Mutant {
                module: stem(&file).to_owned(),
                replacements: replacements.split(", ").map(str::to_owned).collect(),
                breaks: breaks.to_owned(),
                config: project_file("spec/tla").join(config),
            });
        }
    }
    mutants
}

#[test]
fn every_state_of_every_model_keeps_its_invariants() {
    if !is_long() {
        return;
    }
    let configs = files("cfg");
    assert!(configs.len() >= 4, "{configs:?}");
    for config in configs {
        // `LeasesFailover.cfg` is for `Leases.tla`.
        let module = files("tla").into_iter().find(|module| {
            !stem(module).ends_with("Mutants") && stem(&config).starts_with(stem(module))
        });
        let run = check(stem(&module.unwrap()), &config);
        let is_complete = run.stdout.contains("No errors found");
        assert!(
            run.code == Some(0) && is_complete,
            "{}: {}{}",
            config.display(),
            run.stdout,
            run.stderr
        );
        let figures = run.stdout.lines().map(str::trim);
        let figures =
            figures.filter(|line| line.starts_with("Reachable") || line.starts_with("Time"));
        eprintln!(
            "{}: {}",
            stem(&config),
            figures.collect::<Vec<_>>().join(", ")
        );
    }
}

#[test]
fn every_mutant_breaks_an_invariant() {
    if !is_long() {
        return;
    }
    let mutants = mutants();
    assert!(mutants.len() >= 19, "{}", mutants.len());
    let dir = crate::support::Dir::new();
    for mutant in mutants {
        let mut config = fs::read_to_string(&mutant.config).unwrap();
        for replacement in &mutant.replacements {
            config.push_str(&format!("CONSTANT {replacement}\n"));
        }
        let invariants = config.lines().find(|line| line.starts_with("INVARIANTS"));
        let invariants = invariants.unwrap().to_owned();
        config = config.replace(&invariants, &format!("INVARIANT {}", mutant.breaks));
        dir.write("mutant.cfg", &config);
        let run = check(&mutant.module, &dir.path("mutant.cfg"));
        let violated = format!("({}) violated", mutant.breaks);
        let is_violated = run.stdout.contains(&violated);
        assert!(
            run.code != Some(0) && is_violated,
            "{} {:?}: {}{}",
            mutant.module,
            mutant.replacements,
            run.stdout,
            run.stderr
        );
    }
}
