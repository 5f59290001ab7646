//! Nothing is claimed without a command that shows it: sections name tests and
//! benchmarks, and these exist.

use std::fs;

use super::links::prose;
use super::{documents, tests_known};
use crate::support::project_file;

/// What comes before the command.
const POINTER: &str = "Shown by `";

/// The same at the head of a document, for all its sections.
const FOR_ALL: &str = " shown by `";

/// Sections that claim nothing, and their documents.
const CLAIM_NOTHING: [(&str, &str); 5] = [
    ("README.md", "More"),
    ("README.md", "License"),
    ("docs/architecture.md", "Choices, and why"),
    ("docs/security.md", "What it is not"),
    ("docs/security.md", "Reporting a vulnerability"),
];

/// Of the README and the guides.
#[test]
fn every_section_names_what_shows_it() {
    let mut left = CLAIM_NOTHING.to_vec();
    for document in documents() {
        if document != "README.md" && !document.starts_with("docs/") {
            continue;
        }
        let text = prose(&document);
        let mut sections = text.split("\n## ");
        let for_all = on_one_line(sections.next().unwrap()).contains(FOR_ALL);
        for section in sections {
            let title = section.lines().next().unwrap();
            let place = (document.as_str(), title);
            if left.contains(&place) {
                left.retain(|it| *it != place);
            } else {
                assert!(
                    for_all || on_one_line(section).contains(POINTER),
                    "{document}: nothing is named that shows what `{title}` says"
                );
            }
        }
    }
    assert!(left.is_empty(), "{left:?} are not there");
}

#[test]
fn tests_that_are_named_exist() {
    let mut named = 0;
    for (document, span) in spans() {
        let Some(rest) = span.strip_prefix("cargo test -p ") else {
            continue;
        };
        let place = || format!("{document}: `{span}`");
        let (name, filters) = rest.split_once(' ').unwrap_or((rest, ""));
        assert!(project_file("crates").join(name).is_dir(), "{}", place());
        if filters.is_empty() || filters == "--doc" {
            continue;
        }
        let filters = filters.strip_prefix("--test it");
        let filters = filters.unwrap_or_else(|| panic!("{}: what is it?", place()));
        for filter in filters.split_whitespace().filter(|it| *it != "--") {
            assert!(tests_known::in_crate(name, filter), "{}: {filter}", place());
            named += 1;
        }
        // Several names stand behind `--`, or cargo refuses them.
        let several = filters.split_whitespace().count() > 1;
        assert_eq!(several, filters.contains(" -- "), "{}", place());
    }
    assert!(named > 50, "{named}");
}

#[test]
fn benchmarks_that_are_named_exist() {
    let source = project_file("crates/fluxgate-bench/src");
    let main = fs::read_to_string(source.join("main.rs")).unwrap();
    let mut named = 0;
    for (document, span) in spans() {
        let Some(names) = span.strip_prefix("scripts/bench ") else {
            continue;
        };
        let is_name = |it: &&str| !it.contains('…') && !it.starts_with("--");
        let names = names.split_whitespace().filter(is_name);
        for name in names {
            assert!(
                main.contains(&format!("(\"{name}\", ")),
                "{document}: `{span}`"
            );
            named += 1;
        }
    }
    assert!(named > 5);

    // The first column of the tables: what to run in the README, what is measured here.
    let files = fs::read_dir(&source).unwrap();
    let files = files.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let all = files.collect::<Vec<_>>().concat();
    for name in first_column("README.md", "| `scripts/bench …` |") {
        assert!(main.contains(&format!("(\"{name}\", ")), "{name}");
    }
    for name in first_column("docs/benchmarks.md", "| bench |") {
        assert!(all.contains(&format!("\"{name}\"")), "{name}");
    }
}

/// The names at the begin of the rows of a table.
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
fn what_the_scripts_install_is_named() {
    let guide = super::read("CONTRIBUTING.md");
    for script in ["scripts/test", "scripts/bench", "scripts/fuzz"] {
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

/// All that stands between backticks, with its document. It may go over a line's end.
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

/// A text without its line ends.
pub(super) fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
