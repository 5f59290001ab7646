//! The console in a real browser, and the checks of its sources. The tests themselves are
//! JavaScript, in `tests/console`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::fetched;

/// The files of tests. Each has a Rust test below.
const FILES: [&str; 13] = [
    "diff",
    "fleet",
    "identities",
    "identity_words",
    "lab",
    "overview",
    "rules",
    "scale",
    "shell",
    "states",
    "text",
    "words",
    "yaml",
];

/// How a type checker reads the sources: as the browser does, without a build step.
const STRICT: [&str; 10] = [
    "--noEmit",
    "--allowJs",
    "--checkJs",
    "--strict",
    "--target",
    "es2022",
    "--module",
    "nodenext",
    "--lib",
    "es2023,dom,dom.iterable",
];

#[test]
fn overview() {
    run("overview");
}

#[test]
fn fleet() {
    run("fleet");
}

#[test]
fn rules() {
    run("rules");
}

#[test]
fn identities() {
    run("identities");
}

#[test]
fn lab() {
    run("lab");
}

#[test]
fn scale() {
    run("scale");
}

#[test]
fn shell() {
    run("shell");
}

#[test]
fn states() {
    run("states");
}

#[test]
fn pure_parts_of_the_identities_view() {
    run("identity_words");
}

#[test]
fn pure_parts_of_the_rules_view() {
    for file in ["diff", "text", "words", "yaml"] {
        run(file);
    }
}

#[test]
fn every_file_of_tests_is_run() {
    let entries = fs::read_dir(crate_dir().join("tests/console")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<_> = names
        .filter_map(|name| name.strip_suffix(".test.mjs").map(str::to_owned))
        .collect();
    assert_eq!(found, BTreeSet::from(FILES.map(str::to_owned)));
}

#[test]
fn the_sources_have_no_type_errors() {
    let tsc = fetched("FLUXGATE_TSC", "node/node_modules/typescript/bin/tsc");
    let mut command = Command::new("node");
    command.arg(tsc).args(STRICT);
    command.args(scripts(&crate_dir().join("src/console")));
    check(command.current_dir(crate_dir()));
}

/// Runs the tests of a file.
#[track_caller]
fn run(name: &str) {
    assert!(FILES.contains(&name), "{name} is not in FILES");
    let axe = fetched("FLUXGATE_AXE", "node/node_modules/axe-core/axe.min.js");
    let mut command = Command::new("timeout");
    // Long enough for a busy machine; each test has a shorter limit of its own.
    command.args(["--kill-after=10", "900", "node", "--test"]);
    command.arg(format!("tests/console/{name}.test.mjs"));
    command.env("FLUXGATE_BIN", env!("CARGO_BIN_EXE_fluxgate"));
    command.env("FLUXGATE_AXE", axe);
    // The page in the binary is tested, whatever was used in development.
    command.env_remove("FLUXGATE_CONSOLE_DIR");
    let output = check(command.current_dir(crate_dir()));
    // Times and sizes that the tests measure; shown with --nocapture.
    for line in output.lines().filter(|line| is_figure(line)) {
        println!("{line}");
    }
}

/// Returns whether the line is a remark of a test: not a name, not a sum.
fn is_figure(line: &str) -> bool {
    line.starts_with("# ")
        && [" ms", " px", "nodes"]
            .iter()
            .any(|unit| line.contains(unit))
}

/// Runs a command and returns its output.
#[track_caller]
fn check(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// Returns every script in a folder, and in the folders in it.
fn scripts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let found = paths.flat_map(|path| {
        if path.is_dir() {
            scripts(&path)
        } else {
            vec![path]
        }
    });
    found
        .filter(|path| path.extension() == Some(OsStr::new("js")))
        .collect()
}

fn crate_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
