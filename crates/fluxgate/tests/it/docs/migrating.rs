//! The guides to migrate from another rate limiter.

use super::{Block, documents};
use crate::support::Dir;

/// The kinds of the configurations, and the formats of `fluxgate import`.
const FORMATS: [(&str, &str); 5] = [
    ("json openfluxgate", "openfluxgate"),
    ("nginx", "nginx"),
    ("yaml bucket4j", "bucket4j"),
    ("yaml envoy-ratelimit", "envoy-ratelimit"),
    ("yaml kong", "kong"),
];

/// The rules follow the configuration, with a command between them.
#[test]
fn each_configuration_becomes_the_rules_that_are_shown() {
    let mut seen = Vec::new();
    for document in documents() {
        let blocks = Block::all_of(&document);
        for (index, block) in blocks.iter().enumerate() {
            let format = FORMATS.iter().find(|(kind, _)| *kind == block.kind);
            let Some((_, format)) = format else {
                continue;
            };
            let file = block.file.as_deref().unwrap();
            let command = format!("fluxgate import {format} {file} --output rules.yaml");
            let [console, rules] = &blocks[index + 1..=index + 2] else {
                panic!("{block}: no rules follow");
            };
            assert_eq!(console.commands()[0].command, command, "{console}");
            assert_eq!(
                (rules.kind.as_str(), &rules.file),
                ("yaml", &None),
                "{rules}"
            );
            let dir = Dir::new();
            dir.write(file, &block.text);
            let run = dir.run(&["import", format, file]);
            assert_eq!(
                (run.code, run.stdout),
                (Some(0), rules.text.clone()),
                "{rules}"
            );
            seen.push(*format);
        }
    }
    seen.sort_unstable();
    let mut all = FORMATS.map(|(_, format)| format);
    all.sort_unstable();
    assert_eq!(seen, all);
}

/// The index names every guide and every format.
#[test]
fn the_index_is_complete() {
    let index = super::read("docs/migrating/README.md");
    for document in documents() {
        if let Some(name) = document.strip_prefix("docs/migrating/") {
            assert!(
                name == "README.md" || index.contains(&format!("({name})")),
                "{name}"
            );
        }
    }
    let help = Dir::new().run(&["import", "--help"]).stdout;
    for (_, format) in FORMATS {
        assert!(index.contains(&format!("| `{format}` |")), "{format}");
        assert!(help.contains(&format!("- {format}:")), "{help}");
    }
}
