//! The files that `docker build` sends: what `.dockerignore` leaves of the repository.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::output_of;
use crate::support::{Dir, project_file};

/// A line of `.dockerignore`.
struct Pattern {
    segments: Vec<String>,
    /// Whether it includes what earlier lines exclude.
    is_exception: bool,
}

fn patterns(text: &str) -> Vec<Pattern> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let pattern = line.strip_prefix('!').unwrap_or(line);
            let segments = pattern.split('/').filter(|it| !it.is_empty());
            Pattern {
                segments: segments.map(str::to_owned).collect(),
                is_exception: line.starts_with('!'),
            }
        })
        .collect()
}

/// Returns whether a path is left out. The last line that matches decides; a line that matches
/// a directory also matches everything below it.
fn is_ignored(patterns: &[Pattern], path: &[&str]) -> bool {
    let matching = patterns.iter().rev().find(|pattern| {
        let segments: Vec<_> = pattern.segments.iter().map(String::as_str).collect();
        (1..=path.len()).any(|length| matches(&segments, &path[..length]))
    });
    matching.is_some_and(|pattern| !pattern.is_exception)
}

fn matches(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**", rest @ ..], _) => (0..=path.len()).any(|skip| matches(rest, &path[skip..])),
        ([first, rest @ ..], [name, below @ ..]) => {
            matches_segment(first.as_bytes(), name.as_bytes()) && matches(rest, below)
        }
        _ => false,
    }
}

fn matches_segment(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|skip| matches_segment(rest, &name[skip..])),
        ([b'?', rest @ ..], [_, below @ ..]) => matches_segment(rest, below),
        ([first, rest @ ..], [byte, below @ ..]) => first == byte && matches_segment(rest, below),
        _ => false,
    }
}

/// Copies the files of a directory that are not ignored.
fn copy(patterns: &[Pattern], from: &Path, to: &Path, at: &mut Vec<String>) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let (source, target) = (entry.path(), to.join(&name));
        at.push(name);
        let path: Vec<_> = at.iter().map(String::as_str).collect();
        let is_ignored = is_ignored(patterns, &path);
        // An exception may name something below an ignored directory.
        let may_have_exceptions = patterns
            .iter()
            .any(|it| it.is_exception && it.segments[0] == path[0]);
        if source.is_dir() && (!is_ignored || may_have_exceptions) {
            copy(patterns, &source, &target, at);
        } else if !is_ignored && source.is_file() {
            fs::create_dir_all(to).unwrap();
            fs::copy(source, target).unwrap();
        }
        at.pop();
    }
}

#[test]
fn cargo_finds_every_target_of_the_manifests_that_docker_gets() {
    let ignored = fs::read_to_string(project_file(".dockerignore")).unwrap();
    let dir = Dir::new();
    let context = dir.path("context");
    let repository = project_file(".");
    copy(&patterns(&ignored), &repository, &context, &mut Vec::new());

    // Cargo refuses the workspace if a manifest names a file that is missing.
    let mut cargo = Command::new(env!("CARGO"));
    let cargo = cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let metadata = output_of(cargo.current_dir(&context));
    // Messages may follow, for example that another cargo has a lock.
    let mut values = serde_json::Deserializer::from_str(&metadata).into_iter::<Value>();
    let metadata = values.next().unwrap().unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let service = packages.iter().find(|it| it["name"] == "fluxgate").unwrap();
    let targets = service["targets"].as_array().unwrap();
    assert!(
        targets.iter().any(|it| it["kind"][0] == "bin"),
        "{targets:?}"
    );
    assert!(context.join("Cargo.lock").is_file());

    // Texts that are part of the program. Those of documentation are read by its tests only.
    let mut included = 0;
    let mut left = vec![context.join("crates")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        if path.extension().is_none_or(|it| it != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| !line.contains("doc = ")) {
            let file = ["include_str!(\"", "include_bytes!(\""];
            let file = file
                .iter()
                .find_map(|macro_name| line.split_once(macro_name));
            let file = file.and_then(|(_, rest)| rest.split_once("\")"));
            if let Some((file, _)) = file {
                let file = path.parent().unwrap().join(file);
                assert!(file.is_file(), "{}: {line}", path.display());
                included += 1;
            }
        }
    }
    assert!(included > 10, "{included}");
}

#[test]
fn the_last_pattern_that_matches_a_path_or_its_directory_decides() {
    let patterns = patterns("# comment\n*\n!crates\ncrates/*/tests\n**/*.tmp\n!/a/?.tmp\n");
    let ignored = |path: &str| is_ignored(&patterns, &path.split('/').collect::<Vec<_>>());
    for path in [
        "target/x",
        "crates/a/tests/it/main.rs",
        "crates/a/b/c.tmp",
        "a/bc.tmp",
    ] {
        assert!(ignored(path), "{path}");
    }
    for path in ["crates/a/src/tests/x.rs", "crates/tests", "a/b.tmp"] {
        assert!(!ignored(path), "{path}");
    }
}
