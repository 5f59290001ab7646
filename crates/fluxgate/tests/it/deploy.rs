//! Checks the files in `deploy` with tools that need no cluster, container or running systemd.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Dir, project_file, python};

mod build_context;
mod containers;
mod kubernetes;
mod packages;
mod systemd;

/// Runs a command, which must succeed, and returns its output.
#[track_caller]
fn output_of(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// Returns a program from a Python package.
fn python_tool(name: &str) -> Command {
    let path = python().with_file_name(name);
    assert!(path.is_file(), "{name} is missing; scripts/test fetches it");
    Command::new(path)
}

/// Returns the documents of a YAML file, parsed by another library than ours.
pub(crate) fn yaml(path: &Path) -> Vec<Value> {
    const SCRIPT: &str = "import json, sys, yaml\n\
        print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let mut command = Command::new(python());
    serde_json::from_str(&output_of(command.args(["-c", SCRIPT]).arg(path))).unwrap()
}

/// Returns the path of a file in `deploy`.
fn deployed(path: &str) -> std::path::PathBuf {
    project_file("deploy").join(path)
}

#[track_caller]
fn assert_valid(text: &str) {
    let run = Dir::with_rules(text).run(&["validate", "rules.yaml"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
}

#[test]
fn the_guide_names_every_file() {
    let guide = std::fs::read_to_string(deployed("README.md")).unwrap();
    let mut left = vec![project_file("deploy")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let name = path.strip_prefix(project_file("deploy")).unwrap();
        let name = name.to_str().unwrap();
        // The chart has a guide of its own.
        if name.starts_with("helm/fluxgate/") {
            continue;
        }
        assert!(
            name == "README.md" || guide.contains(&format!("`{name}`")),
            "{name}"
        );
    }
}
