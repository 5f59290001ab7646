//! Evidence: each section names the tests and benchmarks that show what it says, in a
//! comment that readers do not see, and all of these exist.

use std::fs;

use super::links::prose;
use super::{documents, read, test_names};
use crate::support::project_file;

/// Opens the comment at the end of a section.
const EVIDENCE: &str = "<!-- tested by: ";

/// Opens the comment at the head of a document that covers all its sections.
const EVIDENCE_FOR_ALL: &str = "<!-- everything tested by: ";

/// Documents and sections that claim nothing.
const CLAIM_NOTHING: [(&str, &str); 4] = [
    ("README.md", "License"),
    ("docs/architecture.md", "Design choices"),
    ("docs/security.md", "Out of scope"),
    ("docs/security.md", "Reporting a vulnerability"),
];

/// Checks the README and the guides.
#[test]
fn every_section_names_its_tests() {
    let mut left = CLAIM_NOTHING.to_vec();
    for document in documents() {
        if document != "README.md" && !document.starts_with("docs/") {
            continue;
        }
        let text = prose(&document);
        let mut sections = text.split("\n## ");
        let for_all = sections.next().unwrap().contains(EVIDENCE_FOR_ALL);
        for section in sections {
            let title = section.lines().next().unwrap();
            let section_name = (document.as_str(), title);
            if left.contains(&section_name) {
                left.retain(|it| *it != section_name);
            } else {
                assert!(
                    for_all || section.contains(EVIDENCE),
                    "{document}: the section `{title}` has no comment `{EVIDENCE}… -->`"
                );
            }
        }
    }
    assert!(left.is_empty(), "{left:?} do not exist");
}

/// Evidence is `CRATE/FILTER`, `CRATE` (all its tests), `CRATE/doc`, `bench/NAME`,
/// `fuzz/TARGET`, `clients/LANGUAGE` (all tests of a client) or `packages/CLASS`.
#[test]
fn evidence_exists() {
    let mut named = 0;
    for document in documents() {
        let text = prose(&document);
        let opened = text
            .split(EVIDENCE)
            .skip(1)
            .chain(text.split(EVIDENCE_FOR_ALL).skip(1));
        for comment in opened {
            let (names, _) = comment.split_once("-->").unwrap();
            for name in on_one_line(names).split(", ") {
                assert!(is_evidence(name), "{document}: there is no {name}");
                named += 1;
            }
        }
    }
    assert!(named > 100, "{named}");
}

fn is_evidence(name: &str) -> bool {
    let is_crate = |it: &str| project_file("crates").join(it).is_dir();
    match name.split_once('/') {
        None => is_crate(name) || name == "bench",
        Some(("bench", bench)) => benchmarks().contains(&format!("(\"{bench}\", ")),
        Some(("fuzz", target)) => project_file(&format!("fuzz/fuzz_targets/{target}.rs")).is_file(),
        Some(("clients", language)) => project_file(&format!("clients/{language}/test")).is_file(),
        Some(("packages", class)) => {
            read("scripts/packaging/test.py").contains(&format!("\nclass {class}("))
        }
        Some((of, "doc")) => is_crate(of),
        Some((of, filter)) => test_names::in_crate(of, filter),
    }
}

/// Returns the source that lists the benchmarks.
fn benchmarks() -> String {
    fs::read_to_string(project_file("crates/fluxgate-bench/src/main.rs")).unwrap()
}

/// Checks the commands that readers are to type.
#[test]
fn test_commands_name_tests_that_exist() {
    let mut named = 0;
    for (document, span) in spans() {
        let Some(rest) = span.strip_prefix("cargo test -p ") else {
            continue;
        };
        let context = || format!("{document}: `{span}`");
        let (name, filters) = rest.split_once(' ').unwrap_or((rest, ""));
        assert!(project_file("crates").join(name).is_dir(), "{}", context());
        named += 1;
        if filters.is_empty() || filters == "--doc" {
            continue;
        }
        let binary = if name == "fluxgate" {
            "--test program"
        } else {
            "--test it"
        };
        let filters = filters.strip_prefix(binary);
        let filters = filters.unwrap_or_else(|| panic!("{}: no `{binary}`", context()));
        for filter in filters.split_whitespace().filter(|it| *it != "--") {
            assert!(
                test_names::in_crate(name, filter),
                "{}: {filter}",
                context()
            );
        }
        // Cargo refuses several names unless they follow `--`.
        let several = filters.split_whitespace().count() > 1;
        assert_eq!(several, filters.contains(" -- "), "{}", context());
    }
    assert!(named > 3, "{named}");
}

#[test]
fn benchmarks_that_are_named_exist() {
    let main = benchmarks();
    for (document, span) in spans() {
        let Some(names) = span.strip_prefix("scripts/bench ") else {
            continue;
        };
        let is_name = |it: &&str| !it.contains(['…', '[']) && !it.starts_with("--");
        for name in names.split_whitespace().filter(is_name) {
            assert!(
                main.contains(&format!("(\"{name}\", ")),
                "{document}: `{span}`"
            );
        }
    }

    // The first column names benchmarks in the README and measurements in the table.
    let files = fs::read_dir(project_file("crates/fluxgate-bench/src")).unwrap();
    let files = files.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let all = files.collect::<Vec<_>>().concat();
    for name in first_column("README.md", "| `scripts/bench …` |") {
        assert!(main.contains(&format!("(\"{name}\", ")), "{name}");
    }
    for name in first_column("docs/benchmarks.md", "| bench |") {
        assert!(all.contains(&format!("\"{name}\"")), "{name}");
    }
}

/// Returns the names in the first column of a table.
fn first_column(document: &str, head: &str) -> Vec<String> {
    let text = prose(document);
    let rows = text.lines().skip_while(|line| !line.starts_with(head));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let name = |row: &str| {
        let (name, _) = row.strip_prefix("| `")?.split_once('`')?;
        Some(name.to_owned())
    };
    let names: Vec<_> = rows.filter_map(name).collect();
    assert!(names.len() > 5, "{document}: {names:?}");
    names
}

#[test]
fn tools_that_the_scripts_install_are_listed() {
    let guide = super::read("CONTRIBUTING.md");
    for script in ["scripts/test-rust", "scripts/bench", "scripts/fuzz"] {
        let text = fs::read_to_string(project_file(script)).unwrap();
        let needs = text.lines().filter_map(|line| line.strip_prefix("need "));
        for command in needs.map(|need| need.split(' ').next().unwrap()) {
            let is_named = guide.contains(&format!("`{command}`"));
            assert!(is_named, "{script} needs {command}");
        }
    }
}

#[test]
fn paths_and_examples_that_are_named_exist() {
    const ROOTS: [&str; 8] = [
        "crates/",
        "dashboards/",
        "deploy/",
        "docs/",
        "fuzz/",
        "scripts/",
        "spec/",
        "tests/",
    ];
    let mut named = 0;
    for (document, span) in spans() {
        for word in span.split(' ') {
            let path = word.split(['*', '{', '[']).next().unwrap();
            if ROOTS.iter().any(|root| path.starts_with(root)) {
                assert!(project_file(path).exists(), "{document}: `{span}`");
                named += 1;
            }
        }
        if let Some((run, example)) = span.split_once(" --example ") {
            let name = run.strip_prefix("cargo run -p ").unwrap();
            let example = example.split(' ').next().unwrap();
            let file = format!("crates/{name}/examples/{example}.rs");
            assert!(project_file(&file).is_file(), "{document}: `{span}`");
        }
    }
    assert!(named > 10);
}

/// Returns all code spans with their documents. A span may continue on the next line.
fn spans() -> Vec<(String, String)> {
    let mut spans = Vec::new();
    for document in documents() {
        for paragraph in prose(&document).split("\n\n") {
            let paragraph = on_one_line(paragraph);
            let pieces = paragraph.split('`').skip(1).step_by(2);
            spans.extend(pieces.map(|span| (document.clone(), span.to_owned())));
        }
    }
    spans
}

/// Returns a text on one line.
pub(super) fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
