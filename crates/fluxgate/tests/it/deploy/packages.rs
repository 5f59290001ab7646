//! What the guides say about packages. `scripts/test packages` builds and tries them.

use std::collections::BTreeSet;
use std::fs;

use super::{deployed, output_of, python_tool, yaml};
use crate::docs;
use crate::support::project_file;

fn read(path: &str) -> String {
    fs::read_to_string(project_file(path)).unwrap()
}

/// Returns the version of the workspace.
fn version() -> String {
    let manifest = read("Cargo.toml");
    let (_, section) = manifest.split_once("[workspace.package]").unwrap();
    let (_, version) = section.split_once("version = \"").unwrap();
    version.split('"').next().unwrap().to_owned()
}

#[test]
fn the_guides_name_packages_of_this_version() {
    let version = version();
    let built = read("scripts/package");
    let mut named = BTreeSet::new();
    for block in docs::blocks("sh packages") {
        for word in block.text.split([' ', '\n', '/', ':']) {
            let is_package = ["gz", "deb", "tar", "tgz"]
                .iter()
                .any(|it| word.ends_with(&format!(".{it}")));
            if is_package {
                let pattern = word.replace(&version, "VERSION");
                assert!(
                    built.contains(&format!("#   {pattern} ")),
                    "{block}: {word}"
                );
                named.insert(pattern);
            }
        }
    }
    assert_eq!(named.len(), 4, "{named:?}");
    for (file, line) in [
        (
            "deploy/helm/fluxgate/Chart.yaml",
            format!("\nversion: {version}\n"),
        ),
        (
            "deploy/helm/fluxgate/Chart.yaml",
            format!("\nappVersion: \"{version}\"\n"),
        ),
        (
            "deploy/kubernetes/kustomization.yaml",
            format!("newTag: \"{version}\"\n"),
        ),
        ("docs/install.md", format!("fluxgate:{version}\n")),
    ] {
        assert!(read(file).contains(&line), "{file} lacks {line}");
    }
}

#[test]
fn crates_are_published_in_the_order_of_their_dependencies() {
    let guide = read("docs/releasing.md");
    let lines = guide.lines();
    let published: Vec<_> = lines
        .filter_map(|line| line.strip_prefix("cargo publish -p "))
        .collect();
    for (index, name) in published.iter().enumerate() {
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        // Those for tests are left out when a crate is published.
        let manifest = manifest.split("[dev-dependencies]").next().unwrap();
        let needed = manifest
            .lines()
            .filter(|line| line.starts_with("fluxgate-"));
        for line in needed {
            let needed = line.split(['.', ' ']).next().unwrap();
            assert!(
                published[..index].contains(&needed),
                "{name} needs {needed}"
            );
        }
    }
    let mut crates = BTreeSet::new();
    for entry in fs::read_dir(project_file("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        if !manifest.contains("publish = false") {
            crates.insert(name);
        }
    }
    assert_eq!(
        crates,
        published.iter().map(|it| (*it).to_owned()).collect()
    );
}

#[test]
fn the_values_of_the_chart_follow_its_schema() {
    let mut check = python_tool("check-jsonschema");
    check.arg("--schemafile");
    check.arg(deployed("helm/fluxgate/values.schema.json"));
    output_of(check.arg(deployed("helm/fluxgate/values.yaml")));
}

/// Those that are rendered by the tests of packages.
#[test]
fn the_guide_of_the_chart_names_values_that_exist() {
    let values = yaml(&deployed("helm/fluxgate/values.yaml"))[0].take();
    let blocks = docs::blocks("yaml helm");
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        let keys = block.text.lines().filter(|line| !line.starts_with(' '));
        for key in keys.filter_map(|line| line.split(':').next()) {
            assert!(!values[key].is_null(), "{block}: {key}");
        }
    }
    for block in docs::blocks("sh helm") {
        let words = block.text.split_whitespace();
        for path in words.filter(|word| word.starts_with("deploy/")) {
            assert!(project_file(path).is_dir(), "{block}: {path}");
        }
    }
}
