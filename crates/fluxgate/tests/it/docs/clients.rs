//! Programs in other languages. Each block is a part of a file that the tests of a client run.

use std::fs;

use super::all_blocks;
use crate::support::project_file;

/// The kinds of blocks that are such programs.
const LANGUAGES: [&str; 5] = ["go", "java", "js", "python", "yaml spring"];

#[test]
fn every_snippet_is_part_of_a_program() {
    for block in all_blocks() {
        if !LANGUAGES.contains(&block.kind.as_str()) {
            continue;
        }
        let Some(file) = &block.file else {
            panic!("{block}: the fence does not name the file that has this");
        };
        let program = fs::read_to_string(project_file(file));
        let program = program.unwrap_or_else(|error| panic!("{block}: {file}: {error}"));
        assert!(program.contains(&block.text), "{block}: {file} differs");
    }
}
