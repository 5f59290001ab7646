//! What the documents say is tried.

use std::fs;
use std::path::PathBuf;

use crate::support::{Dir, project_file};

/// The README and everything in `docs`.
fn documents() -> Vec<PathBuf> {
    let docs = fs::read_dir(project_file("docs")).unwrap();
    let mut documents: Vec<_> = docs.map(|entry| entry.unwrap().path()).collect();
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents.push(project_file("README.md"));
    documents.sort();
    documents
}

/// The blocks of this language, each with the line it begins at.
pub(crate) fn blocks(text: &str, language: &str) -> Vec<(usize, String)> {
    let opening = format!("```{language}");
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        match &mut open {
            Some(_) if line.trim_end() == "```" => blocks.extend(open.take()),
            Some((_, block)) => *block += &format!("{line}\n"),
            None if line.trim_end() == opening => open = Some((index + 2, String::new())),
            None => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

#[test]
fn every_config_and_rule_file_in_the_documents_is_good() {
    let mut tried = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for (line, block) in blocks(&text, "yaml") {
            let dir = Dir::with_rules(&block);
            let run = dir.run(&["validate", "rules.yaml"]);
            let path = path.display();
            assert_eq!(run.code, Some(0), "{path}:{line}: {}", run.stderr);
            tried.push(path.to_string());
        }
    }
    for name in ["README.md", "config.md", "rules.md", "simulate.md"] {
        assert!(
            tried.iter().any(|path| path.ends_with(name)),
            "none in {name}"
        );
    }
}

#[test]
fn the_simulations_in_the_documents_write_what_they_are_said_to_write() {
    let mut tried = 0;
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let rules = blocks(&text, "yaml");
        let inputs = blocks(&text, "json requests");
        let outputs = blocks(&text, "json decisions");
        assert_eq!(inputs.len(), outputs.len(), "{}", path.display());
        for ((line, input), (_, output)) in inputs.iter().zip(&outputs) {
            // By the rule file that stands before them.
            let (_, rules) = rules.iter().rfind(|(at, _)| at < line).unwrap();
            let run = Dir::with_rules(rules).simulate(input, &[]);
            assert_eq!(run.stdout, *output, "{}:{line}", path.display());
            tried += 1;
        }
    }
    assert!(tried > 0);
}
