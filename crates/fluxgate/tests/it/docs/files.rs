//! Configs, rule files, recorded requests and programs in the documents.

use std::fs;

use super::{Block, all_blocks, blocks, documents};
use crate::support::{Dir, project_file};

#[test]
fn every_config_and_rule_file_in_the_documents_is_valid() {
    for block in blocks("yaml") {
        let dir = Dir::with_rules(&block.text);
        let run = dir.run(&["validate", "rules.yaml"]);
        // Not every build can read MongoDB.
        if block.text.contains("mongodb:") && !cfg!(feature = "mongodb") {
            assert!(run.stderr.contains("without MongoDB"), "{block}: {run:?}");
            continue;
        }
        assert_eq!(run.code, Some(0), "{block}: {}", run.stderr);
    }
}

/// Blocks come in this order: rules, requests, decisions and, optionally, a summary.
#[test]
fn the_simulations_in_the_documents_write_what_is_shown() {
    let kinds = ["yaml", "json requests", "json decisions", "text summary"];
    let (mut decided, mut summed_up) = (0, 0);
    for document in documents() {
        let mut blocks = Block::all_of(&document);
        blocks.retain(|block| kinds.contains(&block.kind.as_str()));
        for (index, block) in blocks.iter().enumerate() {
            let before = |steps: usize, kind: &str| {
                let found = index.checked_sub(steps).map(|index| &blocks[index]);
                let found = found.filter(|found| found.kind == kind);
                &found.unwrap_or_else(|| panic!("{block}: no {kind}")).text
            };
            let requests = match block.kind.as_str() {
                "json decisions" => 1,
                "text summary" => 2,
                _ => continue,
            };
            let requests_are = before(requests, "json requests");
            let dir = Dir::with_rules(before(requests + 1, "yaml"));
            let run = dir.simulate(requests_are, &["--summary"]);
            if requests == 1 {
                assert_eq!(run.stdout, block.text, "{block}");
                decided += 1;
            } else {
                assert_eq!(run.stderr, block.text, "{block}");
                summed_up += 1;
            }
        }
    }
    let all = (blocks("json decisions").len(), blocks("text summary").len());
    assert_eq!((decided, summed_up), all);
    assert_eq!(decided, blocks("json requests").len());
}

/// Blocks come in this order: old rules, requests, new rules and the changes. Others may be
/// between them.
#[test]
fn the_changes_in_the_documents_are_what_is_shown() {
    let [changes] = &blocks("text changes")[..] else {
        panic!("one block shows changes")
    };
    let before = Block::all_of(&changes.document).into_iter();
    let mut before: Vec<_> = before.filter(|block| block.line < changes.line).collect();
    let mut last = |kind: &str| {
        let found = before.iter().rposition(|block| block.kind == kind);
        let found = found.unwrap_or_else(|| panic!("{changes}: no {kind}"));
        before.truncate(found + 1);
        before.pop().unwrap().text
    };
    let (new, requests, old) = (last("yaml"), last("json requests"), last("yaml"));
    let dir = Dir::with_rules(&new);
    dir.write("old.yaml", old);
    let run = dir.simulate(requests, &["--against", "old.yaml"]);
    assert_eq!(run.stderr, changes.text, "{changes}");
}

/// A newcomer's first programs, at the top of the documentation, with the most lines that
/// they may have.
#[test]
fn the_first_programs_are_short() {
    for (file, max_lines) in [
        ("crates/fluxgate-core/src/lib.rs", 8),
        ("crates/fluxgate-core/src/guide.rs", 8),
        ("crates/fluxgate-redis/src/lib.rs", 15),
        ("crates/fluxgate-tower/src/lib.rs", 25),
    ] {
        let text = fs::read_to_string(project_file(file)).unwrap();
        let docs = text.lines().map_while(|line| line.strip_prefix("//!"));
        let mut docs = docs.skip_while(|line| !line.starts_with(" ```")).skip(1);
        let program: Vec<_> = docs.by_ref().take_while(|line| *line != " ```").collect();
        assert!(
            (1..=max_lines).contains(&program.len()),
            "{file}: {program:#?}"
        );
        // Nothing is hidden from the reader, so what is shown is all there is.
        assert!(
            program.iter().all(|line| !line.starts_with(" # ")),
            "{file}"
        );
    }
}

/// Programs run as doctests of the crate that has all their dependencies. Those with
/// `no_run` need a server and are only compiled.
#[test]
fn every_program_in_the_documents_is_a_doctest() {
    let path = "crates/fluxgate-tower/src/lib.rs";
    let library = fs::read_to_string(project_file(path)).unwrap();
    let (_, doctests) = library
        .split_once("#[cfg(doctest)]\nmod documents {")
        .unwrap();
    for block in all_blocks() {
        if block.kind.starts_with("rust") {
            let included = format!("include_str!(\"../../../{}\")", block.document);
            assert!(doctests.contains(&included), "{block} is not in {path}");
        }
    }
}
