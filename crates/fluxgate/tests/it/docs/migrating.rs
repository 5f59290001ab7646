//! The guides to migrate from another rate limiter.

use super::{Block, blocks, documents, only};
use crate::support::Dir;

/// The kinds of the configurations, and the formats of `fluxgate import`.
const FORMATS: [(&str, &str); 7] = [
    ("json openfluxgate", "openfluxgate"),
    ("yaml openfluxgate", "openfluxgate"),
    ("yaml spring-cloud-gateway", "spring-cloud-gateway"),
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
            let [console, result] = &blocks[index + 1..=index + 2] else {
                panic!("{block}: no result follows");
            };
            let rules = format!("fluxgate import {format} {file} --output rules.yaml");
            let config = format!("fluxgate import {format} {file} --config --output fluxgate.yaml");
            let shown = &console.commands()[0].command;
            let is_config = *shown == config;
            assert!(is_config || *shown == rules, "{console}");
            assert_eq!((&*result.kind, &result.file), ("yaml", &None), "{result}");
            let dir = Dir::new();
            dir.write(file, &block.text);
            let mut arguments = vec!["import", format, file];
            arguments.extend(is_config.then_some("--config"));
            let run = dir.run(&arguments);
            assert_eq!(
                (run.code, run.stdout),
                (Some(0), result.text.clone()),
                "{result}"
            );
            seen.push(*format);
        }
    }
    seen.sort_unstable();
    let mut all = FORMATS.map(|(_, format)| format);
    all.sort_unstable();
    assert_eq!(seen, all);
}

/// Those of the operations guide, with the prefix that the importer sets.
#[test]
fn the_permissions_are_those_of_the_operations_guide() {
    let operations = only("text acl");
    let expected = operations
        .replace("~fluxgate:", "~fluxgate2:")
        .replace("&fluxgate:rules", "&fluxgate2:rules");
    for block in blocks("text acl openfluxgate") {
        assert_eq!(block.text.trim(), expected.trim(), "{block}");
    }
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
