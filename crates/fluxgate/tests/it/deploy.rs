//! What is in `deploy`, put before whatever can judge it without a cluster, a
//! container or a systemd of one's own.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Dir, project_file, python};

mod containers;
mod kubernetes;
mod systemd;

/// What a program says; it must succeed.
#[track_caller]
fn said(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// A program that comes with a Python package.
fn python_tool(name: &str) -> Command {
    let path = python().with_file_name(name);
    assert!(path.is_file(), "{name} is missing; scripts/test fetches it");
    Command::new(path)
}

/// The documents of a YAML file, read by somebody else than us.
fn yaml(path: &Path) -> Vec<Value> {
    const SCRIPT: &str = "import json, sys, yaml\n\
        print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let mut command = Command::new(python());
    serde_json::from_str(&said(command.args(["-c", SCRIPT]).arg(path))).unwrap()
}

/// A file of `deploy`.
fn deployed(path: &str) -> std::path::PathBuf {
    project_file("deploy").join(path)
}

/// `fluxgate validate` must like it.
#[track_caller]
fn is_valid(text: &str) {
    let run = Dir::with_rules(text).run(&["validate", "rules.yaml"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
}

/// What is not said to have been run was not: the guide names every file.
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
        assert!(
            name == "README.md" || guide.contains(&format!("`{name}`")),
            "{name}"
        );
    }
}
