//! Fuzz targets: the manifest, the seeds, the guide and the script list all of them. (Tests of
//! the crates check that each target calls a fuzz function, and that each has a target.)

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use fluxgate_testkit::fuzz::targets_of;

use crate::support::project_file;

fn targets() -> BTreeSet<String> {
    let crates = [
        "fluxgate",
        "fluxgate-llm",
        "fluxgate-redis",
        "fluxgate-simulate",
    ];
    crates.iter().flat_map(|name| targets_of(name)).collect()
}

fn names_in(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(project_file(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn every_file_is_a_target_of_a_crate_and_is_built() {
    let files = names_in("fuzz/fuzz_targets");
    let files: BTreeSet<_> = files.iter().map(|file| file.replace(".rs", "")).collect();
    assert_eq!(files, targets());
    let manifest = fs::read_to_string(project_file("fuzz/Cargo.toml")).unwrap();
    let built = manifest.split("[[bin]]").skip(1).map(|binary| {
        let mut lines = binary.lines().filter_map(|line| line.split_once(" = "));
        let mut field = |name| {
            lines
                .find(|(it, _)| *it == name)
                .unwrap()
                .1
                .trim_matches('"')
        };
        let (name, path) = (field("name"), field("path"));
        assert_eq!(path, format!("fuzz_targets/{name}.rs"));
        name.to_owned()
    });
    assert_eq!(built.collect::<BTreeSet<_>>(), targets());
}

#[test]
fn every_target_has_seeds() {
    assert_eq!(names_in("fuzz/seeds"), targets());
    for target in targets() {
        let seeds = names_in(&format!("fuzz/seeds/{target}"));
        assert!(seeds.len() >= 3, "{target}: {seeds:?}");
    }
}

#[test]
fn the_guide_and_the_script_name_every_target() {
    let guide = fs::read_to_string(project_file("CONTRIBUTING.md")).unwrap();
    let (_, section) = guide.split_once("\n## Fuzzing\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let named = rows.map(|row| row.split('`').next().unwrap().to_owned());
    assert_eq!(named.collect::<BTreeSet<_>>(), targets());

    let script = project_file("scripts/fuzz");
    let list = Command::new(script).arg("--list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let listed: BTreeSet<_> = list.lines().map(str::to_owned).collect();
    assert_eq!(listed, targets());
}
